// Telling that a replica ran out of memory.
//
// The kernel's OOM killer leaves no trace in the exit status but SIGKILL. Its counters do: those of this process's
// control group, and that of the whole machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adaptdl::sched {

// How many processes the OOM killer killed, by each counter that can be read, in a fixed order. `root` stands for "/".
std::vector<std::uint64_t> oom_kills(const std::filesystem::path& root = "/");

// Remembers the counters, so that a kill just now is told from one long ago.
class OomWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit OomWatch(std::filesystem::path root = "/");

  // To be called from time to time: what the counters said some seconds ago becomes the measure.
  void tick(Clock::time_point now = Clock::now());
  // Whether a counter moved within the last seconds.
  bool killed_lately() const;

 private:
  std::filesystem::path root_;
  std::vector<std::uint64_t> older_, newer_;
  Clock::time_point sampled_;
};

// Whether the last lines of a failed program say that memory ran out, of the machine or of a GPU.
bool says_out_of_memory(std::span<const std::string> lines);

}  // namespace adaptdl::sched
