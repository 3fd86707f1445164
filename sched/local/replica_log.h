// The log file of one replica: everything it wrote, of both streams, over all its starts.
//
// Beside the logs of all ranks lies a file .order, from which RunLogs tells which of them wrote first: a line "RANK
// END" for each flush, where END is how long the log of that rank is after it.
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
  // Opens directory/rank-<rank>.log to append to and writes a header with the time, the job and the start. What is
  // created is private. Throws Error if it cannot be written.
  ReplicaLog(const std::filesystem::path& directory, int rank, const std::string& job_id, int restarts);

  // Appends a line, or a piece of one (see LaunchObserver::line), as it came.
  void line(Stream stream, std::string_view text, bool ends);
  // Hands to the system what was appended, and notes when. Returns the error that made the log incomplete, once.
  std::optional<std::string> flush();

 private:
  std::filesystem::path path_;
  int rank_;
  std::ofstream file_;
  Fd order_;  // none: it cannot be written, and nothing is noted
  bool appended_ = true;
  std::optional<Stream> unfinished_;  // the stream of the line that the file ends in the middle of
  bool failed_ = false;
};

}  // namespace adaptdl::sched
