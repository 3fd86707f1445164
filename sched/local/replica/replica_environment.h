// Builds the environment in which a replica is started, according to the contract in runtime/include/adaptdl/env.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "local/base/launch_plan.h"

namespace adaptdl::sched {

using Environment = std::map<std::string, std::string>;

// Returns the environment of this process.
Environment caller_environment();

// Returns whether only the launcher may set this variable. A value that the launcher inherits, for example because it
// runs inside a replica itself, is not passed on to its replicas.
bool is_launchers_own(std::string_view name);

// The properties that distinguish a replica from the other replicas in its job.
struct ReplicaPlace {
  int rank = 0;
  int size = 1;             // number of replicas in the job
  int restarts = 0;         // number of restarts of the job before this start
  std::string master_host;  // host on which rank 0 listens
  std::uint16_t master_port = 0;
  std::string device;  // empty: no particular device
  std::string id;      // stays the same when the rank changes; empty: the job has no supervisor
  int generation = 0;  // the generation that the replica starts in or may join
  std::string supervisor_url, supervisor_token;
  std::string token_file;  // file that contains supervisor_token; empty: no file
};

// Returns a replica's environment: the caller's environment without the launcher's own variables, then plan.settings,
// then the variables that the launcher sets. If a variable is set more than once, the last value is used. `cores` is
// the number of cores that this machine's replicas share.
Environment replica_environment(const LaunchPlan& plan, const Environment& caller, const ReplicaPlace& place,
                                unsigned cores);

// Returns "NAME=VALUE" strings, as execve() expects them.
std::vector<std::string> to_strings(const Environment& environment);
// Returns pointers to the strings and a null pointer, as execve() expects them. The pointers are valid as long as
// `strings` is.
std::vector<char*> to_pointers(const std::vector<std::string>& strings);

// Returns how many processor cores this process may use according to its affinity and its control group's quota; at
// least 1.
unsigned usable_cores();

}  // namespace adaptdl::sched
