// Stores, on this machine, the results that a trial's replicas print.
//
// In a cluster, a log is deleted with its pod. After a connection is lost or a search is killed, logs are read again
// from the start. Each result is therefore stored, together with its pod and the time at which it was printed, before
// it is delivered. A later search delivers the stored results in the same order and recognizes lines that it reads
// again.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tune/study/result.h"

namespace adaptdl::sched::tune {

class OutputRecord {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Reads the file, which need not exist. Removes an incomplete last line, which a crash may leave. Throws Error if the
  // file cannot be read or contains an invalid line.
  OutputRecord(std::filesystem::path file, std::string metric);

  // Returns the results that the file contained, in order. Later calls return none.
  std::vector<Result> take_stored();
  // Must be called before all logs are read again from the start.
  void restart() { seen_.clear(); }
  // Stores the result that a line of a pod's output contains, and returns the result once it is on disk. `pod` is the
  // uid of the pod. Returns nullopt if the line contains no result or was added before. Throws Error if the result
  // cannot be stored.
  std::optional<Result> add(const std::string& pod, Time time, std::string_view line);

 private:
  using Line = std::tuple<std::string, std::int64_t, std::string>;  // pod, time in nanoseconds, text

  void load();

  const std::filesystem::path file_;
  const std::string metric_;
  std::map<Line, int> known_;  // how many times each line is in the file
  std::map<Line, int> seen_;   // how many times each line has been read since restart()
  std::vector<Result> stored_;
};

}  // namespace adaptdl::sched::tune
