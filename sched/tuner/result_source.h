// One of the places in which a trial's results may appear.
//
// A source delivers the same results in the same order to each search of a study. A search can therefore recognize, by
// their numbers, the results that an earlier search has stored.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tune/study/result.h"

namespace adaptdl::sched::tune {

// The limit on the bytes that one read() reads from a file, so that a backlog does not block the caller.
inline constexpr std::uint64_t kMaxResultRead = std::uint64_t{1} << 20;

class ResultSource {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~ResultSource() = default;
  // Reads some or all of the data that was added since the last call. If `ended` is true, the run has ended, and
  // everything that is left is read, even an incomplete line. Throws Error if a file cannot be read.
  virtual void read(Clock::time_point now, bool ended) = 0;
  // Returns whether the last read() left available data unread.
  virtual bool has_more() const noexcept = 0;
  // Returns whether the last read() left out something that it could not read yet.
  virtual bool is_blocked() const noexcept { return false; }
  // Returns whether take() would return any results.
  virtual bool has_results() const noexcept = 0;
  // Returns the results that read() has found. Throws Error if the order of the results must be stored but cannot be.
  virtual std::vector<Result> take() = 0;
  // Closes the files until the next call.
  virtual void close() {}
};

}  // namespace adaptdl::sched::tune
