#include "command/command.h"

#include <algorithm>

namespace adaptdl::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "run a program as the replicas of a job on this machine", Needs::kNothing, add_run},
    {"checkpoint", "look at the checkpoints of a job, check, export and prune them", Needs::kNothing, add_checkpoint},
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
