// The logs of a run's replicas, read as they grow.
//
// What several ranks wrote is given out in the order in which it was written, as far as the launcher noted it (see
// ReplicaLog); what it did not note comes rank by rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "local/fd.h"
#include "local/lines.h"

namespace adaptdl::sched {

class RunLogs {
 public:
  // A line without its newline, or a piece of a very long one.
  using Sink = std::function<void(int rank, std::string_view text)>;

  // `rank`: whose log is read; none: all.
  explicit RunLogs(std::filesystem::path directory, std::optional<int> rank = {})
      : directory_(std::move(directory)), only_(rank) {}

  // Gives out the lines that came since the last call.
  void read(const Sink& sink);
  // Gives out those in the next `max` bytes of the log. Returns whether there may be more. REQUIRES a single rank.
  bool read_some(const Sink& sink, std::uint64_t max);
  // Gives out all the rest, lines without an end too. To be called once nothing more is written.
  void finish(const Sink& sink);
  // Closes the files, which the next call opens again.
  void close();

 private:
  struct Log {
    Fd file;
    std::uint64_t read = 0;  // bytes
    LineSplitter lines;
  };

  // Gives out the lines of a log up to that many bytes.
  void read_log(int rank, std::uint64_t end, const Sink& sink);

  std::filesystem::path directory_;
  std::optional<int> only_;
  std::uint64_t order_read_ = 0;  // bytes
  std::map<int, Log> logs_;
};

// The ranks of which there are logs.
std::set<int> logged_ranks(const std::filesystem::path& directory);

}  // namespace adaptdl::sched
