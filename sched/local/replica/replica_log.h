// ReplicaLog is the log file of one rank. It contains both output streams of the rank's replicas, across all starts.
//
// Next to the logs, a file .order records, for RunLogs, the order in which the ranks wrote. The file contains a line
// "RANK END" for each flush, where END is the length of that rank's log after the flush.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "local/base/launch_observer.h"

namespace adaptdl::sched {

class ReplicaLog {
 public:
  // Opens directory/rank-<rank>.log for appending, and writes a header with the time, the job and the number of
  // restarts. New files and directories are accessible only to the user. Throws Error if the log cannot be written.
  ReplicaLog(const std::filesystem::path& directory, int rank, const std::string& job_id, int restarts);

  // Appends a line, or a piece of one (see LaunchObserver::line), unchanged.
  void line(Stream stream, std::string_view text, bool ends);
  // Writes the appended text to the file, and records the order. If an error has made the log incomplete, returns the
  // error, but only once.
  std::optional<std::string> flush();

 private:
  std::filesystem::path path_;
  int rank_;
  std::ofstream file_;
  Fd order_;  // empty if the file .order cannot be written, in which case no order is recorded
  bool appended_ = true;
  std::optional<Stream> unfinished_;  // the stream of the unfinished line at the end of the file
  bool failed_ = false;
};

}  // namespace adaptdl::sched
