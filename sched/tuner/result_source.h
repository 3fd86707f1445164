// One of the places in which a trial's results may appear.
//
// A source delivers the same results in the same order to each search of a study, so that a search recognizes those
// that an earlier one has stored by their number.
//
// Threading: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tune/result.h"

namespace adaptdl::sched::tune {

// Bytes that one read() reads of a file, so that a backlog does not block the caller.
inline constexpr std::uint64_t kMaxResultRead = std::uint64_t{1} << 20;

class ResultSource {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~ResultSource() = default;
  // Looks for what came since the last call, or a part of it. `ended`: the run has ended, so all of the rest is read,
  // an incomplete line too. Throws Error if a file cannot be read.
  virtual void read(Clock::time_point now, bool ended) = 0;
  // Whether the last read() left something unread that was there.
  virtual bool has_more() const noexcept = 0;
  // Whether the last read() could not read something that can be read later.
  virtual bool is_blocked() const noexcept { return false; }
  // Whether take() returns any results.
  virtual bool has_results() const noexcept = 0;
  // What read() has found. Throws Error if its order must be stored and cannot be.
  virtual std::vector<Result> take() = 0;
  // Closes the files until the next call.
  virtual void close() {}
};

}  // namespace adaptdl::sched::tune
