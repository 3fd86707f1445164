#include "view/run_screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/printable.h"
#include "terminal/terminal.h"
#include "view/status_line.h"

namespace adaptdl::cli {
RunScreen::RunScreen(int replicas) : replicas_(replicas), status_wanted_(is_capable_terminal(STDERR_FILENO)) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) colour_[fd] = use_colour(fd);
}

std::string RunScreen::prefix(int rank, bool colour) const {
  static constexpr Colour kColours[] = {Colour::kCyan, Colour::kGreen, Colour::kMagenta, Colour::kYellow,
                                        Colour::kBlue};
  return coloured(fmt::format("[{}]", rank), kColours[static_cast<std::size_t>(rank) % std::size(kColours)], colour) +
         ' ';
}

void RunScreen::line(int rank, sched::Stream stream, std::string_view text, bool) {
  if (queue_.size() >= kMaxQueued) {
    if (!std::exchange(omits_, true)) notice("the output is not being read; some lines are only in the logs");
    return;
  }
  // A piece of a very long line is shown on its own line, because other text may follow it.
  const int fd = stream == sched::Stream::kOut ? STDOUT_FILENO : STDERR_FILENO;
  std::string out = prefix(rank, colour_[fd]);
  out += text;
  out += '\n';
  put(fd, std::move(out));
}

void RunScreen::notice(std::string_view text) {
  put(STDERR_FILENO, coloured("adaptdl: " + printable(text), Colour::kBold, colour_[STDERR_FILENO]) + '\n');
}

void RunScreen::print(std::string_view text) { put(STDERR_FILENO, std::string(text)); }

void RunScreen::put(int fd, std::string text) {
  wipe_status();
  queue_.put(fd, std::move(text));
}

void RunScreen::wipe_status() {
  if (!std::exchange(status_drawn_, false)) return;
  queue_.put(STDERR_FILENO, "\r\x1b[K");
}

void RunScreen::tick() {
  const auto now = Clock::now();
  // While other text is pending, the line would be wiped immediately.
  if (!status_wanted_ || !queue_.empty() || now - drawn_at_ < kRedrawEvery) return;
  drawn_at_ = now;
  const std::size_t width = terminal_width(STDERR_FILENO).value_or(kUsualWidth);
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  // One column stays free, because some terminals wrap a line that fills the last column.
  const std::string text = status_text(progress_, replicas_, elapsed, width > 0 ? width - 1 : 0);
  queue_.put(STDERR_FILENO, "\r\x1b[K" + coloured(text, Colour::kDim, colour_[STDERR_FILENO]));
  queue_.write_some();
  status_drawn_ = true;
}

bool RunScreen::output_closed() const { return queue_.refused(STDOUT_FILENO); }

void RunScreen::close() {
  wipe_status();
  status_wanted_ = false;
  queue_.write_all();
}

}  // namespace adaptdl::cli
