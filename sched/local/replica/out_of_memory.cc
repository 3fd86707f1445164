#include "local/replica/out_of_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/text_parts.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

constexpr auto kSampleEvery = std::chrono::seconds(3);

// Returns the number after `key` in a file of "key value" lines, if there is such a line.
std::optional<std::uint64_t> counter(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string name;
  for (std::uint64_t value = 0; in >> name >> value;) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> kills_in_own_group(const fs::path& root) {
  // Lines are "hierarchy:controllers:path"; hierarchy 0 is cgroup version 2.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path mounted = root / (version2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    // In a container, the path may be the host's; the group itself is then mounted as the root.
    for (const fs::path& group : {path, fs::path()}) {
      const fs::path file = mounted / group / (version2 ? "memory.events" : "memory.oom_control");
      if (const auto kills = counter(file, "oom_kill")) return kills;
    }
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t oom_kills(const fs::path& root) {
  if (const auto kills = kills_in_own_group(root)) return *kills;
  return counter(root / "proc/vmstat", "oom_kill").value_or(0);
}

OomWatch::OomWatch(fs::path root)
    : root_(std::move(root)), older_(oom_kills(root_)), newer_(older_), sampled_(Clock::now()) {}

void OomWatch::tick(Clock::time_point now) {
  if (now - sampled_ < kSampleEvery) return;
  older_ = newer_;
  newer_ = oom_kills(root_);
  sampled_ = now;
}

bool OomWatch::killed_lately() const { return oom_kills(root_) > older_; }

bool mentions_out_of_memory(std::span<const std::string> lines) {
  static constexpr std::string_view kSigns[] = {"out of memory",          "outofmemoryerror",      "std::bad_alloc",
                                                "cannot allocate memory", "can't allocate memory", "memoryerror"};
  return std::ranges::any_of(lines, [](const std::string& line) {
    return std::ranges::any_of(
        kSigns, [text = lower(line)](std::string_view sign) { return text.find(sign) != std::string::npos; });
  });
}

}  // namespace adaptdl::sched
