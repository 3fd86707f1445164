// Detects that a replica ran out of memory.
//
// The exit status of a process that the kernel's OOM killer ended shows only SIGKILL. But the kernel also counts such
// kills, for each control group and for the whole machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace adaptdl::sched {

// Returns how many processes of this process's control group the OOM killer has killed. If that cannot be read, as in
// the root group of cgroup v2, returns the count for the whole machine, or 0 without one. `root` replaces "/".
std::uint64_t oom_kills(const std::filesystem::path& root = "/");

// Remembers the count in order to distinguish a recent kill from an old one.
class OomWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OomWatch(std::filesystem::path root = "/");

  // Must be called regularly: the count from a few seconds ago becomes the baseline.
  void tick(Clock::time_point now = Clock::now());
  // Returns whether the count has increased since the baseline, that is, within the last few seconds.
  bool killed_lately() const;

 private:
  std::filesystem::path root_;
  std::uint64_t older_, newer_;
  Clock::time_point sampled_;
};

// Returns whether the last lines of a failed program report that the machine or a GPU ran out of memory.
bool mentions_out_of_memory(std::span<const std::string> lines);

}  // namespace adaptdl::sched
