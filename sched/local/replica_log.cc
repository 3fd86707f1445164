#include "local/replica_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "adaptdl/error.h"

namespace adaptdl::sched {

ReplicaLog::ReplicaLog(const std::filesystem::path& directory, int rank, const std::string& job_id, int restarts)
    : path_(directory / fmt::format("rank-{}.log", rank)) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  file_.open(path_, std::ios::app | std::ios::binary);
  if (!file_) throw Error(fmt::format("cannot write the log {}: {}", path_.string(), std::strerror(errno)));
  file_ << fmt::format("=== {} rank {}, start {}, {:%Y-%m-%d %H:%M:%S %z} ===\n", job_id, rank, restarts,
                       fmt::localtime(std::time(nullptr)));
}

void ReplicaLog::line(Stream stream, std::string_view text, bool ends) {
  if (unfinished_ && *unfinished_ != stream) file_ << '\n';
  file_ << text;
  if (ends) file_ << '\n';
  unfinished_ = ends ? std::nullopt : std::optional(stream);
}

std::optional<std::string> ReplicaLog::flush() {
  file_.flush();
  if (file_ || failed_) return std::nullopt;
  failed_ = true;
  return fmt::format("cannot write on to the log {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace adaptdl::sched
