#include "view/copy_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

constexpr auto kRateAfter = std::chrono::milliseconds(500);  // a rate computed earlier would be meaningless

}  // namespace

std::string copy_text(const std::string& name, std::uint64_t done, std::optional<std::uint64_t> total,
                      std::chrono::milliseconds elapsed, std::size_t width) {
  std::string text = printable(name) + "  " + format_bytes(done);
  if (total && *total > 0) {
    const double part = static_cast<double>(done) / static_cast<double>(*total);
    text += fmt::format(" of {}  {:.0f}%", format_bytes(*total), 100 * part);
  }
  if (elapsed >= kRateAfter && done > 0) {
    const double rate = 1000.0 * static_cast<double>(done) / static_cast<double>(elapsed.count());
    text += fmt::format("  {}/s", format_bytes(static_cast<std::uint64_t>(rate)));
    if (total && *total > done) {
      const auto left =
          std::chrono::milliseconds(static_cast<std::int64_t>(1000.0 * static_cast<double>(*total - done) / rate));
      text += fmt::format("  {} left", format_clock(left));
    }
  }
  return truncated(text, width);
}

CopyLine::CopyLine(std::string name)
    : name_(std::move(name)), capable_(is_capable_terminal(STDERR_FILENO)), begin_(std::chrono::steady_clock::now()) {}

void CopyLine::show(std::uint64_t done, std::optional<std::uint64_t> total) {
  const auto now = std::chrono::steady_clock::now();
  if (!capable_ || now - drawn_ < kRedrawEvery) return;
  drawn_ = now;
  shown_ = true;
  const std::size_t width = terminal_width(STDERR_FILENO).value_or(kUsualWidth);
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_);
  redraw_line(copy_text(name_, done, total, elapsed, std::max<std::size_t>(width, 2) - 1));
}

void CopyLine::clear() {
  if (shown_) erase_line();
  shown_ = false;
}

}  // namespace adaptdl::cli
