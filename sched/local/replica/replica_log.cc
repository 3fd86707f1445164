#include "local/replica/replica_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "adaptdl/error.h"
#include "base/private_files.h"

namespace adaptdl::sched {

ReplicaLog::ReplicaLog(const std::filesystem::path& directory, int rank, const std::string& job_id, int restarts)
    : path_(directory / fmt::format("rank-{}.log", rank)), rank_(rank) {
  // If one of these calls fails, opening the file reports why.
  create_private_directories(directory);
  create_private_file(path_);
  file_.open(path_, std::ios::app | std::ios::binary);
  if (!file_) throw Error(fmt::format("cannot write the log '{}': {}", path_.string(), std::strerror(errno)));
  order_ = Fd(::open((directory / ".order").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kPrivateFile));
  file_ << fmt::format("=== {} rank {}, start {}, {:%Y-%m-%d %H:%M:%S %z} ===\n", job_id, rank, restarts,
                       fmt::localtime(std::time(nullptr)));
}

void ReplicaLog::line(Stream stream, std::string_view text, bool ends) {
  if (unfinished_ && *unfinished_ != stream) file_ << '\n';
  file_ << text;
  if (ends) file_ << '\n';
  unfinished_ = ends ? std::nullopt : std::optional(stream);
  appended_ = true;
}

std::optional<std::string> ReplicaLog::flush() {
  if (!std::exchange(appended_, false)) return std::nullopt;
  file_.flush();
  if (file_ && order_) {
    // A single write ensures that the entry is not interleaved with the entries of other ranks.
    const std::string entry = fmt::format("{} {}\n", rank_, static_cast<long long>(file_.tellp()));
    [[maybe_unused]] const ssize_t size = ::write(order_.get(), entry.data(), entry.size());
  }
  if (file_ || failed_) return std::nullopt;
  failed_ = true;
  return fmt::format("cannot append to the log '{}': {}", path_.string(), std::strerror(errno));
}

}  // namespace adaptdl::sched
