// How many failures a run survives, and how long it waits after each.
//
// Pure: the time is given. Threading: used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "local/replica_process.h"

namespace adaptdl::sched {

class RestartBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `max`: failures that are survived; those that are not counted need no budget.
  explicit RestartBudget(int max) : max_(max) {}

  // Counts a failure. Returns false, and counts nothing, if there were too many already.
  bool spend();
  int used() const noexcept { return used_; }
  int max() const noexcept { return max_; }

  // How long to wait before anything is started after a failure now, counted or not: kFirstBackOff, twice as long after
  // each further one up to kLongestBackOff, and the first again after kBackOffMemory without any.
  std::chrono::milliseconds back_off(Time now);

  // Whether to start again is in vain: all replicas are gone, as the first that failed did in this way with this last
  // line, before any of them had `trained`, and it was just the same the time before. A program that says nothing
  // gives no such evidence.
  bool in_vain(const ExitStatus& status, const std::string& last_line, bool trained);

 private:
  struct Failure {
    ExitStatus status;
    std::string last_line;

    bool operator==(const Failure&) const = default;
  };

  int max_;
  int used_ = 0;
  std::chrono::milliseconds pause_{0};
  Time failed_at_{};
  std::optional<Failure> at_start_;  // the failure before, if nobody had trained
};

}  // namespace adaptdl::sched
