#include "command/base/command.h"

#include <algorithm>

namespace adaptdl::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Run one or more replicas of a program on this machine", Needs::kNothing, add_run},
    {"tune", "Search for a program's best hyperparameters", Needs::kNothing, add_tune},
    {"build", "Build an image from a Dockerfile and push it, without Docker", Needs::kNothing, add_build},
    {"submit", "Build a project's image and start it as a cluster job", Needs::kCluster, add_submit},
    {"ls", "List local runs and cluster jobs with their states, and why they are waiting or failed", Needs::kNothing,
     add_ls},
    {"top", "Show a cluster's nodes and the jobs on them", Needs::kCluster, add_top},
    {"cost", "Show the usage and cost of cluster jobs, by user and month", Needs::kCluster, add_cost},
    {"logs", "Show the output of a run or job", Needs::kRun, add_logs},
    {"cp", "Copy files and directories to or from a cluster job", Needs::kCluster, add_cp},
    {"describe", "Show details of a run or job", Needs::kRun, add_describe},
    {"resize", "Change the number of replicas of a run", Needs::kRun, add_resize},
    {"suspend", "Suspend cluster jobs until they are resumed", Needs::kCluster, add_suspend},
    {"resume", "Resume suspended cluster jobs", Needs::kCluster, add_resume},
    {"checkpoint", "Inspect, verify, export and prune checkpoints, or make a run save one", Needs::kNothing,
     add_checkpoint},
    {"delete", "End runs or jobs and delete their data", Needs::kRun, add_delete},
    {"tensorboard", "Create, list, serve and delete TensorBoards in a cluster", Needs::kCluster, add_tensorboard},
    {"operator", "Run a cluster's scheduler, or print its manifests", Needs::kNothing, add_operator},
    {"simulate", "Replay a workload on a simulated cluster, under one or more scheduling policies", Needs::kNothing,
     add_simulate},
    {"help", "List all commands, or show the usage of one command", Needs::kNothing, add_help},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace adaptdl::cli
