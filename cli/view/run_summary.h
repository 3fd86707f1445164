// Formats the summary at the end of `adaptdl run`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "local/launch/launcher.h"

namespace adaptdl::cli {

struct RunSummary {
  std::optional<std::filesystem::path> checkpoints;  // their directory; nullopt if none are saved
  std::string resume;                                // the command that continues from them
  bool colour = false;
};

// Returns complete lines that describe how a run ended, or "" if the run succeeded. The lines first describe any
// failure (the last output of the replica that failed first, how that replica ended, and how the others ended), and
// then the checkpoint and how to continue from it.
std::string run_summary(const sched::LaunchResult& result, const RunSummary& about);

// Joins the words of a command, quoted for a shell where necessary.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
