// Records how much of a log has been shown, so that it can be requested again without losing or repeating a line.
//
// A log can be requested only from a given time on, so repeated lines must be distinguished from new ones: of the lines
// with the same time, the server first repeats all those that were shown. Times may decrease by less than a second from
// line to line, because container runtimes read standard output and standard error separately. The response may also
// include lines that precede the first shown line and were not requested.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kube/api/timestamp.h"

namespace adaptdl::kube {

class LogPosition {
 public:
  // Call this when the log is requested again; the new response begins at since().
  void reopen() { again_ = shown_; }
  // Returns the time from which to request the log; empty while nothing has been shown.
  std::string since() const;
  // Returns the latest time of a shown line.
  std::optional<Time> newest() const { return newest_; }
  // Returns whether the next line, which has the given time, is new. If it is new, records it as shown.
  bool take(Time time);

 private:
  // Returns the time from which the log is requested again. REQUIRES: newest_ is set.
  Time begin() const { return std::chrono::floor<std::chrono::seconds>(*newest_) - std::chrono::seconds(1); }

  std::optional<Time> first_, newest_;  // the first shown line's time, and the latest time of a shown line
  std::map<Time, std::size_t> shown_;   // number of shown lines by time, from begin() on
  std::map<Time, std::size_t> again_;   // shown lines that have not been repeated since reopen()
};

// Splits a log with timestamps into lines. Very long lines are passed on in pieces that share one time.
//
// Container runtimes store a long line in records of 16 KiB, and kubelets before 1.21 write the time before each
// record, in the middle of the line; these times are removed. A line is given the time of its last record, because a
// log that is requested again may begin with any record.
class TimedLines {
 public:
  static constexpr std::size_t kMaxPiece = std::size_t{1} << 20;       // bytes
  using Sink = std::function<bool(Time time, std::string_view text)>;  // false: stop

  // Returns false once `sink` has returned false.
  bool add(std::string_view bytes, const Sink& sink);
  // Ends the log: passes on the last line if it has no line break.
  bool finish(const Sink& sink);
  // Discards an incomplete line, which the server will send again.
  void reset();

 private:
  bool give(std::string_view line, bool ends, const Sink& sink);
  // Removes a time from the front of `text` and stores it in last_. Returns false if there is none.
  bool strip_time(std::string_view& text);

  std::string begun_;          // the incomplete line
  bool in_line_ = false;       // pieces of the line were passed on
  std::size_t in_record_ = 0;  // bytes of the line's last record so far
  Time last_{};                // the last time that was parsed
};

}  // namespace adaptdl::kube
