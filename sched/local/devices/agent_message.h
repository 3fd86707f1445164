// The messages between runs and the agent are JSON, one message per line.
//
//   run to agent    {"id": ..., "seen": N, "run": {...}, "fairness": ...}   the full state, each time
//                   {"id": ..., "leaves": true}                             the run's devices are free
//   agent to run    {"number": N, "devices": [...], "reason": ...}
//                   {"error": ...}                                                         the connection then ends
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "local/devices/device_shares.h"

namespace adaptdl::sched {

constexpr std::size_t kMaxMessageLength = std::size_t{1} << 20;  // bytes
constexpr std::size_t kMaxAgentDevices = 4096;                   // per run

struct RunMessage {
  std::string id;  // identifies the run across connections
  bool leaves = false;
  std::uint64_t seen = 0;
  DeviceUser user;
  double fairness = -1;
};

// Each of these functions returns a line, including its newline.
std::string to_line(const RunMessage& message);
std::string to_line(const DeviceShare& share);
std::string error_line(std::string_view what);

// Throws UsageError with a one-line description of the problem.
RunMessage parse_run_message(std::string_view line);
// Throws Error if the line is invalid. If the line is an error from the agent, throws Error with the agent's text.
DeviceShare parse_share(std::string_view line);

}  // namespace adaptdl::sched
