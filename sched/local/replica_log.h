// ReplicaLog is the log file of one rank: both streams of its output, over all its starts.
//
// Beside the logs of all ranks, a file .order shows RunLogs which of them wrote first. It has a line "RANK END" for
// each flush, where END is the length of that rank's log after it.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "local/fd.h"
#include "local/launch_observer.h"

namespace adaptdl::sched {

class ReplicaLog {
 public:
  // Opens directory/rank-<rank>.log for appending, and writes a header with the time, the job and the start. Files and
  // directories that it creates are private. Throws Error if the log cannot be written.
  ReplicaLog(const std::filesystem::path& directory, int rank, const std::string& job_id, int restarts);

  // Appends a line, or a piece of one (see LaunchObserver::line), unchanged.
  void line(Stream stream, std::string_view text, bool ends);
  // Passes what was appended to the system, and records the order. Returns the error that made the log incomplete, but
  // only once.
  std::optional<std::string> flush();

 private:
  std::filesystem::path path_;
  int rank_;
  std::ofstream file_;
  Fd order_;  // none: it cannot be written, and no order is recorded
  bool appended_ = true;
  std::optional<Stream> unfinished_;  // the stream of the line in whose middle the file ends
  bool failed_ = false;
};

}  // namespace adaptdl::sched
