// A LaunchPlan states what to run on this machine, and how.
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
  kCpu,  // slots for replicas without a GPU, in a number that the user chooses
};

// A driver that gives a run access to the devices of a cluster (see ClusterRelay).
struct Relay {
  int in = -1, out = -1;  // descriptors
  std::string address;    // of this machine, at which the other nodes reach it
};

struct LaunchPlan {
  std::filesystem::path program;       // an executable file
  std::vector<std::string> arguments;  // argv[0] included
  std::string job_id = "local/job";    // namespace/name

  int replicas = 1;      // maximum on this machine; >= 1
  int min_replicas = 1;  // minimum
  bool elastic = false;  // the number may change during the run, and replicas may be replaced
  // The maximum of an elastic run until its program was measured or can follow changes of replicas; none: `replicas`.
  std::optional<int> start_replicas;
  std::vector<std::string> devices;           // available to the replicas; empty: they need none
  bool share_devices = false;                 // several replicas may use the same device
  DeviceKind device_kind = DeviceKind::kGpu;  // of `devices`
  bool shares_machine = false;                // this user's runs agree on which of `devices` each gets
  std::optional<double> fairness;             // of this sharing, if this run is the first; none: the policy's default
  int nodes = 1;                              // machines, each with the same number of replicas
  int node_rank = 0;  // 0 <= node_rank < nodes; the ranks on this machine begin at node_rank * replicas
  std::string master_host = "127.0.0.1";  // where the replica of rank 0 listens
  std::uint16_t master_port = 0;          // 0: a free one at each start, which works on a single machine only
  std::optional<Relay> relay;             // none: the replicas run on this machine
  std::string token;  // of a job on several machines; empty: none. A run on one machine creates its own

  std::optional<std::filesystem::path> checkpoints;  // absolute; none: nothing is saved
  std::optional<std::filesystem::path> share;        // absolute; none: as in the caller's environment
  std::optional<std::filesystem::path> logs;         // directory of the rank-<R>.log files, appended to; none: no logs
  std::vector<std::pair<std::string, std::string>>
      settings;  // additional environment variables of the replicas; the last of a name wins

  // How many failures the run survives, by starting the failed replica or all of them again. 0: a failure ends the run.
  int max_restarts = 0;
  // How long a replica waits for the others in a collective call; none: as in the caller's environment, or the default.
  std::optional<std::chrono::milliseconds> hang_timeout;
  // How long replicas may take to checkpoint and exit when asked to; those that have not ended by then are killed. It
  // should be longer than the slowest step plus the time to write a checkpoint. 0: they are killed at once.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
};

// How long a program may take from its start until it handles SIGTERM: a stop waits for that. A program that never does
// is asked after this time at the latest, and in any case with half of the grace left.
inline constexpr std::chrono::milliseconds kStartUp = std::chrono::seconds(5);
// How long a process may take to die of SIGKILL before the launcher gives up on it, as it must hang in the kernel.
inline constexpr std::chrono::milliseconds kKillWait = std::chrono::seconds(10);
// The minimum time between two changes of size by checkpoint and restart, unless a user asks for one.
inline constexpr std::chrono::milliseconds kRestartEvery = std::chrono::minutes(1);

}  // namespace adaptdl::sched
