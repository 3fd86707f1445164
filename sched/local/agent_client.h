// AgentClient connects a run to the agent, which shares the devices of this machine among the runs of a user.
//
// It starts the agent if there is none, and reports what the run wants and holds. If the agent dies, the run keeps what
// it has; after a short random pause, the client starts the agent again and repeats its report.
//
// Use: poll fd(), and call take() when it is readable. Use update() to report a device as held before a process is
// started on it, and as no longer held when the last process on it is gone: only then does another run get it.
//
// Threading: one thread at a time. The client forks to start the agent; the child makes only async-signal-safe calls.
// Lifetime: the destructor releases what the run held to other runs, so its processes must be gone by then.
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

#include "local/device_time.h"
#include "local/fd.h"

namespace adaptdl::sched {

struct AgentRequest {
  std::string name;                  // of the run, for display
  int min = 1, max = 1;              // number of devices
  std::vector<std::string> devices;  // devices that the run may use
  std::string kind = "gpu";          // or "cpu"
  nlohmann::json hints = nlohmann::json::object();
  std::vector<std::string> held;  // devices that its processes use or are about to use
  bool pinned = false;            // once it has devices, it keeps exactly these
  double weight = 1;              // see DeviceUser
  std::optional<int> preferred_count{};

  bool operator==(const AgentRequest&) const = default;
};

struct DeviceAllocation {
  std::vector<std::string> devices;  // empty: the run must wait. Devices that it already had come first, in their order
  std::string reason;                // one clause
};

struct AgentOptions {
  // A program whose main() calls run_agent() if argv[0] is kAgentName. In `adaptdl`, it is the program itself.
  std::filesystem::path program = "/proc/self/exe";
  // The policy and fairness of the agent, if it has no other run yet; see make_policy().
  std::string policy = "adaptive";
  double fairness = -1;
  // The run's device time, which policies know as its service. It must outlive the client. Null: the service is 0.
  const DeviceTime* device_time = nullptr;
};

// How long a run should wait for its first allocation. After that it continues by itself on any of its devices, and
// follows the allocation that comes later.
inline constexpr std::chrono::seconds kFirstAllocation{10};

class AgentClient {
 public:
  // Throws Error if this user has no usable runtime directory, or the system refuses descriptors. An agent that cannot
  // be reached or started is not an error.
  explicit AgentClient(AgentRequest request, AgentOptions options = {});
  ~AgentClient();
  AgentClient(const AgentClient&) = delete;
  AgentClient& operator=(const AgentClient&) = delete;

  // Readable when take() has something to do. It stays the same for the client's lifetime.
  int fd() const noexcept { return events_.get(); }
  // Returns the newest allocation since the last call, if there is one. Also maintains the connection. Does not block.
  std::optional<DeviceAllocation> take();
  // Reports what has changed. Does not block.
  void update(AgentRequest request);

  // Returns the process id of the agent, or none while there is no connection.
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
  bool unsaid_ = true;  // something to report is not in `outgoing_` yet
  bool first_ = true;   // nothing was sent on this connection yet
  bool warned_ = false;
  std::uint64_t seen_ = 0;
  std::vector<std::string> allocated_;
  int changes_ = 0;
};

}  // namespace adaptdl::sched
