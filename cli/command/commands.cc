#include "command/command.h"

#include <algorithm>

namespace adaptdl::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "run a program as the replicas of a job on this machine", Needs::kNothing, add_run},
    {"tune", "search for the best hyperparameters of a program", Needs::kNothing, add_tune},
    {"build", "build an image from a Dockerfile and push it, without Docker", Needs::kNothing, add_build},
    {"submit", "build a project's image and start it as a job of a cluster", Needs::kCluster, add_submit},
    {"ls", "list the runs of this machine and the jobs of a cluster, and why they are as they are", Needs::kNothing,
     add_ls},
    {"top", "show the nodes of a cluster and the jobs on them", Needs::kCluster, add_top},
    {"cost", "show what the jobs of a cluster have used, by user and month", Needs::kCluster, add_cost},
    {"logs", "show what the replicas of a run or job wrote", Needs::kRun, add_logs},
    {"cp", "copy files and directories out of a job of a cluster, or into it", Needs::kCluster, add_cp},
    {"describe", "show all that is known of a run or job", Needs::kRun, add_describe},
    {"resize", "change how many replicas a run has", Needs::kRun, add_resize},
    {"suspend", "suspend jobs of a cluster until they are resumed", Needs::kCluster, add_suspend},
    {"resume", "resume suspended jobs of a cluster", Needs::kCluster, add_resume},
    {"checkpoint", "look at the checkpoints of a job, check, export and prune them, or have one saved", Needs::kNothing,
     add_checkpoint},
    {"delete", "end runs or jobs and remove what is kept of them", Needs::kRun, add_delete},
    {"tensorboard", "create, list, serve here and delete the TensorBoards of a cluster", Needs::kCluster,
     add_tensorboard},
    {"operator", "run the scheduler of a cluster, or print what installs it there", Needs::kNothing, add_operator},
    {"simulate", "replay a workload on a simulated cluster, under one scheduling policy or several", Needs::kNothing,
     add_simulate},
    {"help", "show what adaptdl can do, or how one command is used", Needs::kNothing, add_help},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace adaptdl::cli
