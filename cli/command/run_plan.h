// The options of `adaptdl run`, and what they ask the launcher to do.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "local/launch_plan.h"

namespace adaptdl::cli {

// What --replicas may name at most.
inline constexpr int kMostRunReplicas = 1024;

// As given on the command line; empty: not given.
struct RunOptions {
  std::string replicas = "auto", start_replicas;
  std::string devices, device_kind, fairness, hang_timeout, max_restarts;
  std::string checkpoint, checkpoint_every, checkpoint_keep, share, backend, name, nodes, node_rank, master, token_file,
      logs;
  std::string grace = "30s";
  bool no_checkpoint = false;
  bool detach = false;
  std::vector<std::string> environment;  // NAME=VALUE, or NAME for the caller's value
  std::vector<std::string> program;      // and its arguments
};

// What there is on this machine for replicas to use.
struct Machine {
  std::string search_path;                         // $PATH
  std::string backend;                             // $ADAPTDL_BACKEND, for when no option says
  std::vector<std::string> devices;                // as sched::visible_devices gives them
  unsigned cores = 1;                              // that this process may use
  std::map<std::string, std::string> environment;  // of this process
};

Machine this_machine();

// Checks everything that can be checked without running anything. plan.checkpoints stays empty if options.checkpoint
// is; paths become absolute. Throws UsageError on the first thing that makes no sense.
sched::LaunchPlan make_plan(const RunOptions& options, const Machine& machine);

// The last part of the program's path, as it can be in a job's name: letters, digits, '.', '_' and '-'.
std::string plain_name(const std::string& program);

}  // namespace adaptdl::cli
