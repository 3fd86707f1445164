// The last words of `adaptdl run`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "local/launcher.h"

namespace adaptdl::cli {

struct RunSummary {
  std::optional<std::filesystem::path> checkpoints;  // where they lie; none: nothing was to be saved
  std::string resume;                                // the command that goes on from them
  bool colour = false;
};

// What there is to say after a run, in whole lines; empty after one that simply finished. A failure comes first: the
// replica that failed first, its last lines, and how the others ended; then the checkpoint, and how to go on.
std::string run_summary(const sched::LaunchResult& result, const RunSummary& about);

// The words of a command as a shell takes them, quoted where they need to be.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
