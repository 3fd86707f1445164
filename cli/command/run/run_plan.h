// The options of `adaptdl run`, and the launcher's plan that they describe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "local/base/launch_plan.h"

namespace adaptdl::cli {

// The maximum number of replicas that --replicas accepts.
inline constexpr int kMaxRunReplicas = 1024;

// The options as given on the command line; an option that was not given is empty.
struct RunOptions {
  std::string replicas = "auto", start_replicas;
  std::string devices, device_kind, fairness, hang_timeout, max_restarts;
  std::string checkpoint, checkpoint_every, checkpoint_keep, share, backend, name, nodes, node_rank, master, token_file,
      logs;
  std::string grace = "30s";
  bool no_checkpoint = false;
  bool detach = false;
  std::vector<std::string> environment;  // NAME=VALUE, or NAME for the caller's value
  std::vector<std::string> program;      // the program and its arguments
};

// The properties of this machine that a plan depends on.
struct Machine {
  std::string search_path;                         // $PATH
  std::string backend;                             // $ADAPTDL_BACKEND, used if --backend is not given
  std::vector<std::string> devices;                // as returned by sched::visible_devices
  unsigned cores = 1;                              // number of cores that this process may use
  std::map<std::string, std::string> environment;  // this process's environment variables
  std::optional<sched::Relay> relay;               // as this process's driver specifies in $ADAPTDL_RELAY
};

Machine this_machine();

// Checks everything that can be checked without running anything, and then creates the directories. Paths in the plan
// are absolute; plan.checkpoints is empty if options.checkpoint is empty. Throws UsageError if an option is invalid.
sched::LaunchPlan make_plan(const RunOptions& options, const Machine& machine);

// Returns the last part of the program's path as a job name: up to 63 letters, digits, '.', '_' and '-'.
std::string plain_name(const std::string& program);

}  // namespace adaptdl::cli
