// Builds the environment that a replica is started with, according to the contract in runtime/include/adaptdl/env.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "local/launch_plan.h"

namespace adaptdl::sched {

using Environment = std::map<std::string, std::string>;

// Returns the environment of this process.
Environment caller_environment();

// Returns whether only the launcher sets this variable. A value that the launcher inherits, for example because it runs
// in a replica itself, does not reach its replicas.
bool is_launchers_own(std::string_view name);

// What distinguishes a replica from the others of its job.
struct ReplicaPlace {
  int rank = 0;
  int size = 1;             // replicas of the job
  int restarts = 0;         // of the job, before this start
  std::string master_host;  // where rank 0 listens
  std::uint16_t master_port = 0;
  std::string device;  // empty: none in particular
  std::string id;      // the same when the rank changes; empty: the job has no supervisor
  int generation = 0;  // which it may join, or starts in
  std::string supervisor_url, supervisor_token;
  std::string token_file;  // contains supervisor_token; empty: none
};

// Returns the environment of a replica: the caller's without the launcher's own variables, then plan.settings, then
// what the launcher sets. `cores` is the number of cores that this machine's replicas share.
Environment replica_environment(const LaunchPlan& plan, const Environment& caller, const ReplicaPlace& place,
                                unsigned cores);

// Returns "NAME=VALUE" strings, as execve() expects them.
std::vector<std::string> to_strings(const Environment& environment);
// Returns pointers to the strings and a null pointer, as execve() expects them. They are valid as long as `strings`.
std::vector<char*> to_pointers(const std::vector<std::string>& strings);

// Returns how many processor cores this process may use, by its affinity and its control group's quota; at least 1.
unsigned usable_cores();

}  // namespace adaptdl::sched
