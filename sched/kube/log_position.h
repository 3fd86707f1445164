// How far a log has been shown, so that it can be asked for again without a line lost or doubled.
//
// A log is asked for from a whole second on, so what comes again must be told from what is new: lines older than the
// last one shown, and as many of its very time as were shown already.
//
// Threading: used by one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kube/timestamp.h"

namespace adaptdl::kube {

class LogPosition {
 public:
  // To be called when the log is asked for again: what comes then begins at since().
  void reopen() { again_ = 0; }
  // From when on to ask; empty as long as nothing was shown.
  std::string since() const;
  // Whether the next line, of that time, has not been shown yet; it counts as shown from then on.
  bool take(Time time);

 private:
  std::optional<Time> last_;
  std::size_t shown_ = 0;  // lines of the time `last_`
  std::size_t again_ = 0;  // of these, how many came since reopen()
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
