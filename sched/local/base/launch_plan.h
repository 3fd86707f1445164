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
  kCpu,  // slots for replicas without a GPU; the user chooses their number
};

// A driver that gives a run access to the devices of a cluster (see ClusterRelay).
struct Relay {
  int in = -1, out = -1;  // descriptors
  std::string address;    // address at which the other nodes reach this machine
  bool copies_checkpoints = false;  // the nodes do not share the checkpoint directory with this machine
  // How long a run waits for further nodes after one has joined, if its program must be restarted to use more nodes.
  std::chrono::milliseconds rescale_timeout = std::chrono::seconds(60);
};

struct LaunchPlan {
  std::filesystem::path program;       // an executable file
  std::vector<std::string> arguments;  // including argv[0]
  std::string job_id = "local/job";    // namespace/name

  int replicas = 1;      // maximum number of replicas that this launcher runs; >= 1
  int min_replicas = 1;  // minimum number of replicas
  bool elastic = false;  // the number of replicas may change during the run, and replicas may be replaced
  // The maximum number of replicas of an elastic run until its program has been measured or is known to adapt to
  // changes in that number. nullopt: `replicas`.
  std::optional<int> start_replicas;
  std::vector<std::string> devices;           // devices available to the replicas; empty if they need none
  bool share_devices = false;                 // several replicas may use the same device
  DeviceKind device_kind = DeviceKind::kGpu;  // the kind of `devices`
  bool shares_machine = false;                // the agent divides `devices` among this user's runs
  std::optional<double> fairness;             // used if this is the agent's first run; nullopt: the policy's default
  int nodes = 1;                              // number of machines, each with the same number of replicas
  int node_rank = 0;  // 0 <= node_rank < nodes; the ranks on this machine begin at node_rank * replicas
  std::string master_host = "127.0.0.1";  // host on which the replica with rank 0 listens
  std::uint16_t master_port = 0;          // 0: a free port at each start, which works only on a single machine
  std::optional<Relay> relay;             // nullopt: the replicas run on this machine
  std::string token;  // the token of a job on several machines, or empty; a run on one machine creates its own

  std::optional<std::filesystem::path> checkpoints;  // absolute path; nullopt: nothing is saved
  bool copies_checkpoints = false;  // `checkpoints` is only on this machine, and is copied from and to the nodes
  std::optional<std::filesystem::path> share;        // absolute path; nullopt: same as in the caller's environment
  std::optional<std::filesystem::path> logs;         // directory for the rank-<R>.log files; nullopt: no logs
  std::vector<std::pair<std::string, std::string>>
      settings;  // additional environment variables for the replicas; the last value for a name wins

  // How many failures the run survives, by restarting the failed replica or all replicas. 0: a failure ends the run.
  int max_restarts = 0;
  // How long a replica waits for the other replicas in a collective call. nullopt: the value in the caller's
  // environment or, if there is none, the default.
  std::optional<std::chrono::milliseconds> hang_timeout;
  // How long replicas may take to checkpoint and exit on request. Replicas that have not ended by then are killed. The
  // value should be longer than the slowest step plus the time to write a checkpoint. 0: replicas are killed
  // immediately.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
};

// How long a program may take from its start until it handles SIGTERM. A stop waits for the program to handle the
// signal, but no longer than this time or half of the grace period, whichever is shorter.
inline constexpr std::chrono::milliseconds kStartUp = std::chrono::seconds(5);
// The minimum time between two resizes that checkpoint and restart the run. It does not apply to resizes that a user
// requests.
inline constexpr std::chrono::milliseconds kRestartEvery = std::chrono::minutes(1);

}  // namespace adaptdl::sched
