// A run's side of the agent, which shares the devices of this machine among the runs of a user.
//
// It connects, starts the agent where there is none, and says what the run wants and has. When the agent dies, the run
// keeps what it has; the client brings the agent back, after a short random pause, and tells it again.
//
// Use: poll fd(), and when it is readable, take(). update() says that a device is held before a process is started on
// it, and that it no longer is when the last process on it is gone: only then does another run get it.
//
// Threading: one thread at a time. It forks to start the agent; only async-signal-safe calls happen in the child.
// Lifetime: what the run held is free for others from the destructor on, so its processes must be gone by then.
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
  std::string name;                  // of the run, for people
  int min = 1, max = 1;              // devices
  std::vector<std::string> devices;  // that the run may use
  std::string kind = "gpu";          // or "cpu"
  nlohmann::json hints = nlohmann::json::object();
  std::vector<std::string> held;  // that its processes use, or are about to
  bool pinned = false;            // once it has devices, it keeps exactly these
  double weight = 1;              // see DeviceUser
  std::optional<int> preferred_count{};

  bool operator==(const AgentRequest&) const = default;
};

struct DeviceAllocation {
  std::vector<std::string> devices;  // empty: the run is to wait. Those that it had come first, in their order
  std::string reason;                // one clause
};

struct AgentOptions {
  // Whose main() calls run_agent() when argv[0] is kAgentName. In `adaptdl` that is the program itself.
  std::filesystem::path program = "/proc/self/exe";
  // Of the agent, if it has no other run yet: see make_policy.
  std::string policy = "adaptive";
  double fairness = -1;
  // The run's, which policies know as its service; it must outlive the client. Null: the run holds none.
  const DeviceTime* device_time = nullptr;
};

// How long a run had better wait for its first allocation. Without one it goes on by itself on any of its devices, and
// follows the allocation that comes later.
inline constexpr std::chrono::seconds kFirstAllocation{10};

class AgentClient {
 public:
  // Throws Error if this user can have no runtime directory. An agent that cannot be reached or started is no error.
  explicit AgentClient(AgentRequest request, AgentOptions options = {});
  ~AgentClient();
  AgentClient(const AgentClient&) = delete;
  AgentClient& operator=(const AgentClient&) = delete;

  // Readable when take() has something to do. The same for the client's lifetime.
  int fd() const noexcept { return events_.get(); }
  // The newest allocation since the last call, if there is one. Does not block. Keeps the connection going, too.
  std::optional<DeviceAllocation> take();
  // Says what has changed. Does not block.
  void update(AgentRequest request);

  // The process that is the agent; none while there is no connection.
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
  bool unsaid_ = true;  // something that is not in `outgoing_`
  bool first_ = true;   // nothing was said on this connection
  bool warned_ = false;
  std::uint64_t seen_ = 0;
  std::vector<std::string> allocated_;
  int changes_ = 0;
};

}  // namespace adaptdl::sched
