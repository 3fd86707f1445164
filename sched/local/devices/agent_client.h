// AgentClient connects a run to the agent, which shares the devices of this machine among the runs of a user.
//
// The client starts the agent if none is running, and reports which devices the run requests and holds. If the agent
// dies, the run keeps its devices; after a short random pause, the client starts the agent again and repeats its
// report.
//
// Use: poll fd(), and call take() when it is readable. Use update() to report a device as held before a process is
// started on it, and as no longer held when the last process on it has ended: only then can another run receive it.
//
// The client forks to start the agent; the child makes only async-signal-safe calls.
// Lifetime: the destructor releases the run's devices to other runs, so the run's processes must have ended by then.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "local/devices/device_time.h"

namespace adaptdl::sched {

struct AgentRequest {
  std::string name;                  // the run's name, for display
  int min = 1, max = 1;              // number of devices
  std::vector<std::string> devices;  // devices that the run may use
  std::string kind = "gpu";          // or "cpu"
  nlohmann::json hints = nlohmann::json::object();
  std::vector<std::string> held;  // devices that its processes use or are about to use
  bool pinned = false;            // once the run has devices, it keeps exactly those
  double weight = 1;              // see DeviceUser
  std::optional<int> preferred_count{};

  bool operator==(const AgentRequest&) const = default;
};

struct DeviceAllocation {
  std::vector<std::string> devices;  // if empty, the run must wait; devices that it already had come first
  std::string reason;                // one clause
};

struct AgentOptions {
  // The program to start as the agent: its main() must call run_agent() if argv[0] is kAgentName. The default is this
  // process's own program.
  std::filesystem::path program = "/proc/self/exe";
  // The policy's fairness, which applies only if the agent has no other run yet; see PolicyOptions.
  double fairness = -1;
  // The run's device time, which policies call its service. Must outlive the client. If null, the service is 0.
  const DeviceTime* device_time = nullptr;
};

// How long a run should wait for its first allocation. After that, the run starts on any of its devices without an
// allocation, and follows a later allocation when it arrives.
inline constexpr std::chrono::seconds kFirstAllocation{10};

class AgentClient {
 public:
  // Throws Error if the user has no usable runtime directory, or if no descriptors are left. It is not an error if the
  // agent cannot be reached or started.
  explicit AgentClient(AgentRequest request, AgentOptions options = {});
  ~AgentClient();
  AgentClient(const AgentClient&) = delete;
  AgentClient& operator=(const AgentClient&) = delete;

  // Returns a descriptor that is readable when take() has work to do. It stays the same for the client's lifetime.
  int fd() const noexcept { return events_.get(); }
  // Returns the newest allocation since the last call, if there is one. Also maintains the connection. Does not block.
  std::optional<DeviceAllocation> take();
  // Reports the changes to the agent. Does not block.
  void update(AgentRequest request);

  // Returns the agent's process id, or nullopt while there is no connection.
  std::optional<int> agent_pid() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void connect();
  void disconnect();
  void try_later();
  void send();
  void watch_socket();
  std::string message(bool first) const;
  std::optional<DeviceAllocation> receive();
  void take_line(std::string_view line, std::optional<DeviceAllocation>& newest);

  AgentRequest request_;
  const AgentOptions options_;
  const std::filesystem::path socket_path_;
  const std::string id_;
  const double submitted_;
  Fd events_, timer_, socket_;
  std::minstd_rand random_;
  std::chrono::milliseconds longest_pause_;
  std::string incoming_, outgoing_;
  bool unsent_ = true;  // something to report is not in `outgoing_` yet
  bool first_ = true;   // nothing has been sent on this connection yet
  bool warned_ = false;
  std::uint64_t seen_ = 0;
  std::vector<std::string> allocated_;
  int changes_ = 0;
};

}  // namespace adaptdl::sched
