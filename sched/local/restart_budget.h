// RestartBudget decides how many failures a run survives, and how long it waits after each.
//
// It has no clock: the caller passes the time. Threading: used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "local/replica_process.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class RestartBudget final : public FailureBudget {
 public:
  // `max` is the number of counted failures that are survived; other failures need no budget.
  explicit RestartBudget(int max) : max_(max) {}

  bool spend() override;
  int used() const noexcept { return used_; }
  int max() const noexcept { return max_; }

  std::chrono::milliseconds back_off(Time now) override { return back_off_.next(now); }

  // Returns whether another start would be in vain: all replicas are gone, the first one failed in this way with this
  // last line before any of them had `trained`, and exactly the same happened the time before. A program without output
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
  std::optional<Failure> at_start_;  // the previous failure, if no replica had trained
};

}  // namespace adaptdl::sched
