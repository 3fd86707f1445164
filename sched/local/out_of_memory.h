// Detects that a replica ran out of memory.
//
// The kernel's OOM killer leaves no trace in the exit status except SIGKILL, but it does in its counters: those of this
// process's control group, and that of the whole machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adaptdl::sched {

// Returns how many processes the OOM killer killed, by each counter in a fixed order (0 if it cannot be read). `root`
// replaces "/".
std::vector<std::uint64_t> oom_kills(const std::filesystem::path& root = "/");

// Remembers the counters in order to distinguish a recent kill from an old one.
class OomWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OomWatch(std::filesystem::path root = "/");

  // Must be called from time to time: the counters of some seconds ago become the baseline.
  void tick(Clock::time_point now = Clock::now());
  // Returns whether a counter has increased since the baseline, within the last seconds.
  bool killed_lately() const;

 private:
  std::filesystem::path root_;
  std::vector<std::uint64_t> older_, newer_;
  Clock::time_point sampled_;
};

// Returns whether the last lines of a failed program report that the machine or a GPU ran out of memory.
bool says_out_of_memory(std::span<const std::string> lines);

}  // namespace adaptdl::sched
