// What runs and the agent say to each other: JSON, a line a message.
//
//   run to agent    {"id": ..., "seen": N, "run": {...}, "policy": ..., "fairness": ...}   all that there is, each time
//                   {"id": ..., "leaves": true}                                            all its devices are free
//   agent to run    {"number": N, "devices": [...], "reason": ...}
//                   {"error": ...}                                                         and the connection ends
//
// Threading: free of state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "local/device_shares.h"

namespace adaptdl::sched {

constexpr std::size_t kLongestMessage = std::size_t{1} << 20;  // bytes

struct RunMessage {
  std::string id;  // of the run, whatever connection it comes by
  bool leaves = false;
  std::uint64_t seen = 0;
  DeviceUser user;
  std::string policy = "adaptive";
  double fairness = -1;
};

// A line with its end.
std::string to_line(const RunMessage& message);
std::string to_line(const DeviceShare& share);
std::string error_line(std::string_view what);

// Throws UsageError, one line that names what is wrong.
RunMessage parse_run_message(std::string_view line);
// Throws Error, with the agent's own words if it sent an error.
DeviceShare parse_share(std::string_view line);

}  // namespace adaptdl::sched
