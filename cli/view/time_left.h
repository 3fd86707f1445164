// TimeLeft estimates the time until a run ends from the run's progress.
#pragma once

#include <chrono>
#include <optional>

#include "local/record/run_status.h"

namespace adaptdl::cli {

class TimeLeft {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Updates the estimate with the run's status, which may be unchanged since the last call, at time `now`. Returns
  // `remaining_s` if the run reports it. Otherwise, returns the time from `progress` to `targetProgress` at the average
  // speed since the replicas last changed, or nullopt until both have been reported and `progress` has increased.
  std::optional<std::chrono::milliseconds> update(const sched::RunStatus& status, Time now);

 private:
  struct Mark {
    int replicas = 0;
    double progress = 0;
    Time time;
  };

  std::optional<Mark> first_, last_;  // first report of the current replicas, and last report of an increase
};

}  // namespace adaptdl::cli
