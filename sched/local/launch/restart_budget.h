// RestartBudget decides how many failures a local run survives, and how long the run waits after each one. (For cluster
// jobs, operator/jobs/group_end.h decides.)
//
// It has no clock: the caller passes the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "local/replica/outcome.h"
#include "local/replica/replica_process.h"
#include "membership/membership.h"

namespace adaptdl::sched {

class RestartBudget final : public FailureBudget {
 public:
  // `max` is the number of counted failures that the run survives; other failures do not use the budget.
  explicit RestartBudget(int max) : max_(max) {}

  bool spend() override;
  int used() const noexcept { return used_; }
  int max() const noexcept { return max_; }

  std::chrono::milliseconds back_off(Time now) override { return back_off_.next(now); }

  // Records the first failure of a start in which all replicas ended, and returns whether a restart would be useless:
  // two consecutive starts failed with the same status and last line of output before any replica had `trained`. A
  // failure without output is not evidence that the cause is the same, and neither is the loss of a node.
  bool in_vain(const ReplicaEnd& failure, bool trained);

 private:
  struct Failure {
    ExitStatus status;
    std::string last_line;

    bool operator==(const Failure&) const = default;
  };

  int max_;
  int used_ = 0;
  BackOff back_off_;
  std::optional<Failure> at_start_;  // the previous failure, if no replica had trained before it
};

}  // namespace adaptdl::sched
