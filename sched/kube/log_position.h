// How far a log has been shown, so that it can be asked for again without a line lost or doubled.
//
// A log is requested again from a time on, so lines that come again must be distinguished from new ones: for each time,
// as many lines come again as were shown. Times may decrease by less than a second from line to line, because container
// runtimes read standard output and standard error separately. Lines before those that were shown, which were not asked
// for, may come as well.
//
// Threading: used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kube/timestamp.h"

namespace adaptdl::kube {

class LogPosition {
 public:
  // To be called when the log is asked for again: what comes then begins at since().
  void reopen() { again_ = shown_; }
  // From when on to ask; empty as long as nothing was shown.
  std::string since() const;
  // The latest time of a line that was shown.
  std::optional<Time> newest() const { return newest_; }
  // Whether the next line, of that time, has not been shown yet; it counts as shown from then on.
  bool take(Time time);

 private:
  // When a log that is requested again begins. REQUIRES newest_.
  Time begin() const { return std::chrono::floor<std::chrono::seconds>(*newest_) - std::chrono::seconds(1); }

  std::optional<Time> first_, newest_;  // of the lines that were shown: the first one, and the latest
  std::map<Time, std::size_t> shown_;   // number of lines by time, from begin() on
  std::map<Time, std::size_t> again_;   // of these, those that have not come again since reopen()
};

// Cuts what comes of a log with timestamps into lines. A line of endless length is given out in pieces of one time.
//
// Container runtimes keep a long line in records of 16 KiB, and kubelets before 1.21 put the time before each record,
// in the middle of the line: these are taken out. The time of a line is that of its last record, for a log that is
// asked for again may begin with any of them.
class TimedLines {
 public:
  static constexpr std::size_t kLongest = std::size_t{1} << 20;        // bytes of a piece
  using Sink = std::function<bool(Time time, std::string_view text)>;  // false: no more

  // Returns false once `sink` did.
  bool add(std::string_view bytes, const Sink& sink);
  // The end of the log: gives out a line without an end.
  bool finish(const Sink& sink);
  // Forgets a line that was begun: it will come again.
  void reset();

 private:
  bool give(std::string_view line, bool ends, const Sink& sink);
  // Takes a time off the front of a text, if one is there.
  bool strip_time(std::string_view& text);

  std::string begun_;          // of a line
  bool in_line_ = false;       // pieces of the line were given out
  std::size_t in_record_ = 0;  // bytes of the line's last record so far
  Time last_{};                // that was read last
};

}  // namespace adaptdl::kube
