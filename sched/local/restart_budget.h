// How many failures a run survives, and how long it waits after each.
//
// Pure: the time is given. Threading: used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "local/replica_process.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class RestartBudget final : public FailureBudget {
 public:
  // `max`: failures that are survived; those that are not counted need no budget.
  explicit RestartBudget(int max) : max_(max) {}

  bool spend() override;
  int used() const noexcept { return used_; }
  int max() const noexcept { return max_; }

  std::chrono::milliseconds back_off(Time now) override { return back_off_.next(now); }

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
  BackOff back_off_;
  std::optional<Failure> at_start_;  // the failure before, if nobody had trained
};

}  // namespace adaptdl::sched
