#include "local/base/lines.h"

namespace adaptdl::sched {

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const bool ends = newline != std::string_view::npos;
    const std::string_view text = bytes.substr(0, newline);
    const std::size_t room = max_line_ - partial_.size();
    if (text.size() > room) {
      partial_.append(text.substr(0, room));
      bytes.remove_prefix(room);
      sink(partial_, false);
      partial_.clear();
      inside_line_ = true;
      continue;
    }
    bytes.remove_prefix(ends ? newline + 1 : bytes.size());
    if (!ends) {
      partial_.append(text);
    } else if (partial_.empty()) {
      sink(text, true);
      inside_line_ = false;
    } else {
      partial_.append(text);
      sink(partial_, true);
      partial_.clear();
      inside_line_ = false;
    }
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!partial_.empty() || inside_line_) sink(partial_, true);
  partial_.clear();
  inside_line_ = false;
}

void LastLines::add(std::string_view line) {
  lines_.emplace_back(line.size() <= kMaxLine ? std::string(line) : std::string(line.substr(0, kMaxLine)) + " [...]");
  if (lines_.size() > kLines) lines_.pop_front();
}

}  // namespace adaptdl::sched
