// TimeLeft estimates the time until the end of a run from its progress.
#pragma once

#include <chrono>
#include <optional>

#include "local/run_status.h"

namespace adaptdl::cli {

class TimeLeft {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Updates the estimate with the run's status at that time, which may be unchanged. Returns `remaining_s` if the run
  // reports it, else the time from `progress` to `targetProgress` at the speed since the replicas last changed; none
  // until both were reported and `progress` has grown.
  std::optional<std::chrono::milliseconds> update(const sched::RunStatus& status, Time now);

 private:
  struct Mark {
    int replicas = 0;
    double progress = 0;
    Time time;
  };

  std::optional<Mark> first_, last_;  // with the present replicas: the first report, and the last different one
};

}  // namespace adaptdl::cli
