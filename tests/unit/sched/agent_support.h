// Clients of the agent that act as runs.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "agent_home.h"
#include "local/devices/agent_client.h"

namespace agent_support {

using namespace adaptdl::sched;
using namespace std::chrono_literals;
using Home = ::testing::AgentHome;
using Devices = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 60s;

inline AgentRequest request(int min, int max, int devices = 4) {
  AgentRequest request;
  request.name = "run";
  request.min = min;
  request.max = max;
  request.kind = "cpu";
  for (int i = 0; i < devices; ++i) request.devices.push_back(std::to_string(i));
  return request;
}

inline const AgentOptions kOptions{.program = ADAPTDL_AGENT};

// A run that uses the devices it is allocated and releases all others, immediately if `prompt` is set.
struct Run {
  Run(Home& home_, AgentRequest wanted_) : home(home_), wanted(std::move(wanted_)), client(wanted, kOptions) {}

  void heed() {
    wanted.held = devices;
    client.update(wanted);
  }
  void take() {
    if (auto allocation = client.take()) {
      ++allocations;
      devices = allocation->devices;
      reason = allocation->reason;
      if (prompt) heed();
    }
    if (const auto pid = client.agent_pid()) home.agents.insert(*pid);
  }

  Home& home;
  AgentRequest wanted;
  AgentClient client;
  bool prompt = true;
  int allocations = 0;
  Devices devices;
  std::string reason;
};

// Serves the runs until the condition holds. Returns false if it does not hold within kPatience.
inline bool await(std::vector<Run*> runs, const std::function<bool()>& so) {
  const auto deadline = Clock::now() + kPatience;
  while (!so()) {
    std::vector<pollfd> readable;
    for (const Run* run : runs) readable.push_back({run->client.fd(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    ::poll(readable.data(), readable.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 100)));
    for (Run* run : runs) run->take();
  }
  return true;
}

}  // namespace agent_support
