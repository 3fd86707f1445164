// What to run, on this machine, and how.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "membership/membership_limits.h"

namespace adaptdl::sched {

enum class DeviceKind {
  kGpu,
  kCpu,  // places for a replica without a GPU, as many as the user says
};

struct LaunchPlan {
  std::filesystem::path program;       // an executable file
  std::vector<std::string> arguments;  // argv[0] included
  std::string job_id = "local/job";    // namespace/name

  int replicas = 1;                  // on this machine, at most; >= 1
  int min_replicas = 1;              // at least
  bool elastic = false;              // the number may change while the run goes on, and replicas may be replaced
  // Of an elastic run, until its program can follow changes of its replicas or was measured; none: as many as it may.
  std::optional<int> start_replicas;
  std::vector<std::string> devices;  // that there are for the replicas; empty: they need none
  bool share_devices = false;        // several replicas may be on one
  DeviceKind device_kind = DeviceKind::kGpu;  // of `devices`
  bool shares_machine = false;                // what it gets of `devices` is for this user's runs to agree on
  std::optional<double> fairness;             // of their sharing, if this run is the first; none: the policy's default
  int nodes = 1;                              // machines, each with as many replicas
  int node_rank = 0;  // 0 <= node_rank < nodes; the ranks of this machine begin at node_rank * replicas
  std::string master_host = "127.0.0.1";  // where the replica of rank 0 listens
  std::uint16_t master_port = 0;          // 0: a free one at each start; of use to a single machine only
  std::string token;  // of a job on several machines; empty: it has none. On one machine, the run makes its own

  std::optional<std::filesystem::path> checkpoints;  // absolute; none: nothing is saved
  std::optional<std::filesystem::path> share;        // absolute; none: what the caller's environment says
  std::optional<std::filesystem::path> logs;  // where each replica's output is appended to rank-<R>.log; none: nowhere
  std::vector<std::pair<std::string, std::string>>
      settings;  // further variables of the replicas; the last of a name wins

  // How many failures the run survives, by starting the replica that failed again or all of them. 0: a failure ends the
  // run.
  int max_restarts = 0;
  // How long a replica waits for the others in a collective call; none: as the caller's environment or the default
  // says.
  std::optional<std::chrono::milliseconds> hang_timeout;
  // How long replicas may take to checkpoint and exit when asked to. Longer than the slowest step plus the time to
  // write a checkpoint; what has not ended by then is killed. 0: at once.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
};

// How long a program may take from its start until it handles SIGTERM: a stop waits for that. One that never does is
// asked no later than this, and in any case with half of the grace left.
inline constexpr std::chrono::milliseconds kStartUp = std::chrono::seconds(5);
// How long a process may take to die of SIGKILL before the launcher gives up on it: one that hangs in the kernel.
inline constexpr std::chrono::milliseconds kKillWait = std::chrono::seconds(10);
// The shortest time between two changes of size by checkpoint and restart, unless a user asks for one.
inline constexpr std::chrono::milliseconds kRestartEvery = std::chrono::minutes(1);

}  // namespace adaptdl::sched
