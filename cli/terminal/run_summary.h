// Formats the summary at the end of `adaptdl run`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "local/launcher.h"

namespace adaptdl::cli {

struct RunSummary {
  std::optional<std::filesystem::path> checkpoints;  // their directory; nullopt if none are saved
  std::string resume;                                // the command that continues from them
  bool colour = false;
};

// Returns whole lines that describe how a run ended, or "" if it succeeded. They describe any failure first (the last
// lines of the replica that failed first, its end, and how the others ended), then the checkpoint and how to continue.
std::string run_summary(const sched::LaunchResult& result, const RunSummary& about);

// Joins the words of a command, quoted for a shell where necessary.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
