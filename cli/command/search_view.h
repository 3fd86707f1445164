// SearchView prepares the trials of a search for the terminal, from the study's storage and the statuses of their runs.
//
// Threading: used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "local/run_status.h"
#include "terminal/search_screen.h"
#include "terminal/time_left.h"
#include "tune/study.h"

namespace adaptdl::cli {

class SearchView {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Returns the status of a trial's run; none if the trial has no run.
  using StatusOf = std::function<std::optional<sched::RunStatus>(int number)>;

  // `all` is the number of trials that the study has in the end.
  SearchView(std::string metric, int all, Time started, StatusOf status_of);

  // Returns at most `rows` rows: running trials by number, then the others that have a value, best first. Statuses are
  // read once per second.
  SearchSnapshot snapshot(const sched::tune::Study& study, std::size_t rows, Time now);

 private:
  struct Run {
    std::optional<sched::RunStatus> status;
    std::optional<std::chrono::milliseconds> left;
    TimeLeft time_left;
  };

  void read_statuses(const sched::tune::Study& study, Time now);
  TrialRow row(const sched::tune::Trial& trial) const;

  const std::string metric_;
  const int all_;
  const Time started_;
  const StatusOf status_of_;
  std::map<int, Run> runs_;  // of trials that are running
  std::optional<Time> read_at_;
};

}  // namespace adaptdl::cli
