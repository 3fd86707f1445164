// SearchView prepares a search's trials for the terminal, from the study's storage and the statuses of their runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "local/record/run_status.h"
#include "tune/study/study.h"
#include "view/search_screen.h"
#include "view/time_left.h"

namespace adaptdl::cli {

class SearchView {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Returns the status of a trial's run, or nullopt if the trial has no run.
  using StatusOf = std::function<std::optional<sched::RunStatus>(int number)>;

  // `all` is the number of trials that the study will have in the end.
  SearchView(std::string metric, int all, Time started, StatusOf status_of);

  // Returns at most `rows` rows: running trials by number, then other trials that have a value, best first. Reads the
  // statuses of runs at most once per second.
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
  std::map<int, Run> runs_;  // by the number of the running trial
  std::optional<Time> read_at_;
};

}  // namespace adaptdl::cli
