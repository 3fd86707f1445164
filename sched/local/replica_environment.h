// The environment that a replica is started with (the contract of runtime/include/adaptdl/env.h, from the other side).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "local/launch_plan.h"

namespace adaptdl::sched {

using Environment = std::map<std::string, std::string>;

// The environment of this process.
Environment caller_environment();

// Whether the launcher alone decides on this variable: what it inherits under such a name, perhaps being a replica
// itself, does not reach its replicas.
bool is_launchers_own(std::string_view name);

// What tells a replica from the others of its job.
struct ReplicaPlace {
  int rank = 0;
  int size = 1;            // replicas of the job
  int restarts = 0;        // of the job, before this start
  std::uint16_t port = 0;  // where rank 0 listens
  std::string device;      // empty: none in particular
  std::string id;          // over changes of rank; empty: the job has no supervisor
  int generation = 0;      // that it may join, or starts in
  std::string supervisor_url, supervisor_token;
  std::string token_file;  // with supervisor_token; empty: none
};

// The environment of a replica: the caller's, without what is the launcher's own, then plan.settings, then what the
// launcher gives. `cores` is what this machine's replicas share.
Environment replica_environment(const LaunchPlan& plan, const Environment& caller, const ReplicaPlace& place,
                                unsigned cores);

// As execve takes it: "NAME=VALUE".
std::vector<std::string> to_strings(const Environment& environment);
// Pointers to the strings and a null one, as execve takes them. Valid as long as the strings are.
std::vector<char*> to_pointers(const std::vector<std::string>& strings);

// The processor cores that this process may use, by its affinity and the quota of its control group; at least 1.
unsigned usable_cores();

}  // namespace adaptdl::sched
