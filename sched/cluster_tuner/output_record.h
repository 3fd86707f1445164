// The results that the replicas of a trial printed, stored on this machine.
//
// Logs of a cluster are deleted with their pods, and are read from their start again after a connection broke or a
// search was killed. So each result is stored before it is delivered, with its pod and the time at which it was
// printed. A later search delivers the stored results in the same order, and a line that is read again is recognized.
//
// Threading: one thread at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tune/result.h"

namespace adaptdl::sched::tune {

class OutputRecord {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Reads the file, which need not exist. An incomplete last line, left by a crash, is removed. Throws Error if the
  // file cannot be read or has an invalid line.
  OutputRecord(std::filesystem::path file, std::string metric);

  // Returns the results of the file, in order; the next call returns none.
  std::vector<Result> take_stored();
  // Must be called before all logs are read from their start again.
  void restart() { seen_.clear(); }
  // Returns the result in a line that a pod, given by its uid, has printed, once it is on disk. Returns none if the
  // line has no result or was there before. Throws Error if it cannot be stored.
  std::optional<Result> add(const std::string& pod, Time time, std::string_view line);

 private:
  using Line = std::tuple<std::string, std::int64_t, std::string>;  // pod, time in nanoseconds, text

  void load();

  const std::filesystem::path file_;
  const std::string metric_;
  std::map<Line, int> known_;  // how often each line is in the file
  std::map<Line, int> seen_;   // how often each line was read since restart()
  std::vector<Result> stored_;
};

}  // namespace adaptdl::sched::tune
