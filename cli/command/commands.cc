#include "command/command.h"

#include <algorithm>

namespace adaptdl::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Run a program as the replicas of a job on this machine", Needs::kNothing, add_run},
    {"tune", "Search for the best hyperparameters of a program", Needs::kNothing, add_tune},
    {"build", "Build an image from a Dockerfile and push it, without Docker", Needs::kNothing, add_build},
    {"submit", "Build a project's image and start it as a job of a cluster", Needs::kCluster, add_submit},
    {"ls", "List the runs of this machine and the jobs of a cluster, with their states and the reasons",
     Needs::kNothing, add_ls},
    {"top", "Show the nodes of a cluster and the jobs on them", Needs::kCluster, add_top},
    {"cost", "Show the usage and cost of the jobs of a cluster, by user and month", Needs::kCluster, add_cost},
    {"logs", "Show the output of the replicas of a run or job", Needs::kRun, add_logs},
    {"cp", "Copy files and directories from or to a job of a cluster", Needs::kCluster, add_cp},
    {"describe", "Show details of a run or job", Needs::kRun, add_describe},
    {"resize", "Change the number of replicas of a run", Needs::kRun, add_resize},
    {"suspend", "Suspend jobs of a cluster until they are resumed", Needs::kCluster, add_suspend},
    {"resume", "Resume suspended jobs of a cluster", Needs::kCluster, add_resume},
    {"checkpoint", "Inspect, verify, export and prune the checkpoints of a job, or have a run save one",
     Needs::kNothing, add_checkpoint},
    {"delete", "End runs or jobs and delete their data", Needs::kRun, add_delete},
    {"tensorboard", "Create, list, serve and delete the TensorBoards of a cluster", Needs::kCluster, add_tensorboard},
    {"operator", "Run the scheduler of a cluster, or print its manifests", Needs::kNothing, add_operator},
    {"simulate", "Replay a workload on a simulated cluster, under one or more scheduling policies", Needs::kNothing,
     add_simulate},
    {"help", "Show the commands of adaptdl, or the usage of one command", Needs::kNothing, add_help},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace adaptdl::cli
