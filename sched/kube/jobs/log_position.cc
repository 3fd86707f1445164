#include "kube/jobs/log_position.h"

#include <algorithm>

namespace adaptdl::kube {
namespace {

constexpr std::size_t kRecord = 16384;  // bytes; the same in containerd, CRI-O and Docker
constexpr std::size_t kStamp = 40;      // maximum length of a time in bytes
constexpr std::chrono::seconds kClockSetBack{10};

}  // namespace

std::string LogPosition::since() const {
  if (!newest_) return "";
  // Servers ignore fractions of a second, so they are not sent.
  return to_string(begin()).substr(0, 19) + 'Z';
}

bool LogPosition::take(Time time) {
  if (const auto again = again_.find(time); again != again_.end()) {
    if (--again->second == 0) again_.erase(again);
    return false;
  }
  // New lines are not older than the first shown line, unless the log was rotated.
  if (!again_.empty() && time < *first_) return false;
  if (!first_) first_ = time;
  // If the clock was set back, the log must be requested from the new time on.
  if (newest_ && time < begin() - kClockSetBack) first_ = newest_ = time;
  ++shown_[time];
  newest_ = newest_ ? std::max(*newest_, time) : time;
  shown_.erase(shown_.begin(), shown_.lower_bound(begin()));
  return true;
}

bool TimedLines::add(std::string_view bytes, const Sink& sink) {
  for (std::size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    std::string_view line = bytes.substr(0, end);
    if (!begun_.empty()) {
      begun_ += line;
      line = begun_;
    }
    const bool more = give(line, true, sink);
    begun_.clear();
    if (!more) return false;
  }
  begun_ += bytes;
  if (begun_.size() < kMaxPiece + kStamp) return true;
  // The rest may be the beginning of a time, so it is kept for the next piece.
  const bool more = give(std::string_view(begun_).substr(0, kMaxPiece), false, sink);
  begun_.erase(0, kMaxPiece);
  return more;
}

bool TimedLines::finish(const Sink& sink) {
  const bool more = begun_.empty() || give(begun_, true, sink);
  begun_.clear();
  return more;
}

void TimedLines::reset() {
  begun_.clear();
  in_line_ = false;
}

bool TimedLines::strip_time(std::string_view& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  if (space > kStamp) return false;
  const auto time = parse_time(text.substr(0, space));
  if (!time) return false;
  last_ = *time;
  text.remove_prefix(std::min(space + 1, text.size()));
  return true;
}

bool TimedLines::give(std::string_view line, bool ends, const Sink& sink) {
  if (!in_line_) {
    strip_time(line);
    in_record_ = 0;
  }
  in_line_ = !ends;
  if (in_record_ + line.size() <= kRecord) {
    in_record_ += line.size();
    return sink(last_, line);
  }
  std::string text;
  while (!line.empty()) {
    if (in_record_ == kRecord) {
      strip_time(line);
      in_record_ = 0;
    }
    const std::string_view part = line.substr(0, kRecord - in_record_);
    text += part;
    in_record_ += part.size();
    line.remove_prefix(part.size());
  }
  return sink(last_, text);
}

}  // namespace adaptdl::kube
