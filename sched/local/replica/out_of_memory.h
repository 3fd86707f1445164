// Detects that a replica ran out of memory.
//
// The exit status of a process that the kernel's OOM killer ended shows only SIGKILL. But the kernel also counts such
// kills, both for this process's control group and for the whole machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adaptdl::sched {

// Returns how many processes the OOM killer has killed according to each counter, in a fixed order. A counter that
// cannot be read is 0. `root` replaces "/".
std::vector<std::uint64_t> oom_kills(const std::filesystem::path& root = "/");

// Remembers the counters in order to distinguish a recent kill from an old one.
class OomWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OomWatch(std::filesystem::path root = "/");

  // Must be called regularly: the counters from a few seconds ago become the baseline.
  void tick(Clock::time_point now = Clock::now());
  // Returns whether a counter has increased since the baseline, that is, within the last few seconds.
  bool killed_lately() const;

 private:
  std::filesystem::path root_;
  std::vector<std::uint64_t> older_, newer_;
  Clock::time_point sampled_;
};

// Returns whether the last lines of a failed program report that the machine or a GPU ran out of memory.
bool mentions_out_of_memory(std::span<const std::string> lines);

}  // namespace adaptdl::sched
