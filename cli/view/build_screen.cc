#include "view/build_screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/printable.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

constexpr std::size_t kLastLines = 30;

std::string seconds(std::chrono::milliseconds span) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(span).count());
}

}  // namespace

std::string step_text(const image::StepInfo& step) {
  return fmt::format("[{}/{}{}{}] {}", step.number, step.count, step.stage.empty() ? "" : " ", step.stage,
                     printable(step.text));
}

BuildScreen::BuildScreen(bool quiet)
    : quiet_(quiet), capable_(!quiet && is_capable_terminal(STDERR_FILENO)), colour_(use_colour(STDERR_FILENO)) {}

void BuildScreen::wipe() {
  if (drawn_) erase_line();
  drawn_ = false;
}

void BuildScreen::put(const std::string& line) {
  if (quiet_) return;
  wipe();
  print_text(line + '\n', stderr);
}

void BuildScreen::live(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!capable_ || now - drawn_at_ < kRedrawEvery) return;
  drawn_at_ = now;
  drawn_ = true;
  const std::size_t width = std::max<std::size_t>(terminal_width(STDERR_FILENO).value_or(kUsualWidth), 2);
  redraw_line(truncated(text, width - 1));
}

void BuildScreen::begin_step(const image::StepInfo& step) {
  header_ = step_text(step);
  headed_ = false;
  last_.clear();
  drawn_at_ = {};
  live(header_);
}

void BuildScreen::end_step(const image::StepInfo&, bool cached, std::chrono::milliseconds took) {
  put(fmt::format("{}  {}", coloured(header_, Colour::kBold, colour_),
                  coloured(cached ? "cached" : seconds(took), Colour::kDim, colour_)));
  last_.clear();
}

void BuildScreen::output(const image::StepInfo&, std::string_view line) {
  if (quiet_) {
    last_.emplace_back(printable(line));
    if (last_.size() > kLastLines) last_.pop_front();
    return;
  }
  if (!headed_) put(coloured(header_, Colour::kBold, colour_));
  headed_ = true;
  put(fmt::format("{} {}", coloured("|", Colour::kDim, colour_), printable(line)));
  live(header_);
}

void BuildScreen::transfer(const image::TransferInfo& transfer) {
  const std::string what = printable(transfer.what);
  if (!transfer.finished) {
    const std::uint64_t total = transfer.total > transfer.was_there ? transfer.total - transfer.was_there : 0;
    return live(total > 0 ? fmt::format("{}  {} of {}", what, format_bytes(transfer.done), format_bytes(total))
                          : fmt::format("{}  {}", what, format_bytes(transfer.done)));
  }
  put(transfer.was_there > 0
          ? fmt::format("{}  {}, {} already there", what, format_bytes(transfer.done), format_bytes(transfer.was_there))
          : fmt::format("{}  {}", what, format_bytes(transfer.done)));
}

void BuildScreen::notice(std::string_view text) {
  wipe();
  print_notice("{}", text);
}

void BuildScreen::show_failure() {
  wipe();
  if (!last_.empty()) print_text(header_ + '\n', stderr);
  for (const std::string& line : last_) print_text("| " + line + '\n', stderr);
  last_.clear();
}

}  // namespace adaptdl::cli
