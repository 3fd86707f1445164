// The results of one trial, read as they come: from its file of results, or from what its program wrote.
//
// Lines of standard output are ignored once the file of results exists, and are returned a second late so that the file
// can come first: a program that reports by adaptdl/report.h may print the same metrics.
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

  // The results since the last call, from the first one on, or a part of them. Throws Error if the file cannot be read.
  std::vector<Result> read();
  // Whether the last read() left something unread that was there.
  bool has_more() const noexcept { return has_more_; }
  // Reads the rest, and all that is still held back. To be called when the run has ended and !has_more().
  std::vector<Result> finish();
  // Closes the files until the next call.
  void close();

 private:
  struct Held {
    std::chrono::steady_clock::time_point since;
    Result result;
  };

  std::vector<Result> collect(bool all);
  void read_file(std::vector<Result>& results);

  const std::filesystem::path file_;
  const std::string metric_;
  Fd input_;
  LineSplitter lines_;
  RunLogs logs_;
  std::deque<Held> held_;
  std::uint64_t offset_ = 0;  // of the file
  bool has_file_ = false, has_more_ = false;
};

}  // namespace adaptdl::sched::tune
