// RunLogs reads the logs of a run's replicas as they grow.
//
// The lines of several ranks are passed on in the order in which they were written, as far as the launcher recorded
// that order (see ReplicaLog). The remaining lines follow rank by rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/fd.h"
#include "local/base/lines.h"

namespace adaptdl::sched {

class RunLogs {
 public:
  // Receives a line without its newline, or a piece of a very long line.
  using Sink = std::function<void(int rank, std::string_view text)>;

  // Reads the log of `rank`, or the logs of all ranks if `rank` is nullopt.
  explicit RunLogs(std::filesystem::path directory, std::optional<int> rank = {})
      : directory_(std::move(directory)), only_(rank) {}

  // Passes on the lines that were added since the last call.
  void read(const Sink& sink);
  // Passes on the lines in the next `max` bytes of the log. Returns whether there may be more. REQUIRES a single rank.
  bool read_some(const Sink& sink, std::uint64_t max);
  // Passes on everything that is left, including unfinished lines. Must be called when nothing more will be written.
  void finish(const Sink& sink);
  // Closes the files, which the next call opens again.
  void close();

 private:
  struct Log {
    Fd file;
    std::uint64_t read = 0;  // bytes
    LineSplitter lines;
  };

  // Passes on the lines of a log up to the offset `end`.
  void read_log(int rank, std::uint64_t end, const Sink& sink);

  std::filesystem::path directory_;
  std::optional<int> only_;
  std::uint64_t order_read_ = 0;  // bytes
  std::map<int, Log> logs_;
};

// Returns the ranks that have logs.
std::set<int> logged_ranks(const std::filesystem::path& directory);

}  // namespace adaptdl::sched
