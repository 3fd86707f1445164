// Formats the summary at the end of `adaptdl run`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "local/launcher.h"

namespace adaptdl::cli {

struct RunSummary {
  std::optional<std::filesystem::path> checkpoints;  // their directory; none: nothing is saved
  std::string resume;                                // the command that continues from them
  bool colour = false;
};

// Returns whole lines that describe the end of a run; empty if it simply finished. A failure comes first: the replica
// that failed first, its last lines, and how the others ended; then the checkpoint, and how to continue.
std::string run_summary(const sched::LaunchResult& result, const RunSummary& about);

// Joins the words of a command, quoted for a shell where that is necessary.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
