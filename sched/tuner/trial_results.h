// The results of one trial, read as they come: from its file of results, or from what its program wrote.
//
// Lines of standard output count only while there is no file of results, and a moment after they were written: a
// program that reports by adaptdl/report.h may also print its metrics.
//
// Threading: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "local/fd.h"
#include "local/lines.h"
#include "local/run_logs.h"
#include "tune/result.h"

namespace adaptdl::sched::tune {

class TrialResults {
 public:
  // `logs`: the directory of rank-0.log.
  TrialResults(std::filesystem::path file, std::filesystem::path logs, std::string metric);

  // The results since the last call, the first call returning all. One without a step of its own has its place among
  // the trial's results, from 1.
  std::vector<Result> read();
  // The same, and all that is still held back. To be called when the run has ended.
  std::vector<Result> finish();

 private:
  struct Held {
    std::chrono::steady_clock::time_point since;
    Result result;
  };

  std::vector<Result> collect(bool all);
  void read_file(std::vector<Result>& results);
  Result numbered(Result result);

  const std::filesystem::path file_;
  const std::string metric_;
  Fd input_;
  LineSplitter lines_;
  RunLogs logs_;
  std::deque<Held> held_;
  std::int64_t count_ = 0;
};

}  // namespace adaptdl::sched::tune
