// Runs the command of a RUN in an image's files, and collects its changes in an upper directory.
//
// The command gets its own mount, process, IPC, cgroup and host name namespaces, a subset of Docker's default
// capabilities, a clean environment and a session. When it ends, all processes that it started are killed, and
// everything is unmounted; if this process is killed, they end, too. The upper directory contains only the command's
// changes: mount points that were created for the step are removed.
//
// Threading: any thread, and several steps at a time; the calling thread waits for the step.
// REQUIRES: the process is in a build namespace (build_namespace.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile.h"
#include "image/overlay.h"

namespace adaptdl::image {

// A mount of a RUN, and what it contains.
struct StepMount {
  Mount mount;  // as in the step (dockerfile.h), expanded
  // For a bind or a cache: the directories in which `mount.source` and its links are resolved, topmost first. Changes
  // to a bind that is not read-only are discarded. None for a cache that begins empty.
  std::vector<std::filesystem::path> from;
  std::string content;  // of a secret
};

struct SandboxStep {
  OverlayLayers root;             // the image's files; changes go to `root.upper`, a new directory
  std::filesystem::path scratch;  // a directory for this step only, which the caller removes; beside the upper one
  std::filesystem::path caches;   // the directory of all cache mounts; created if needed
  std::vector<std::string> command;
  std::optional<std::string> script;  // is stored as the file `command[0]`, in kScriptDirectory
  std::vector<Pair> environment;      // complete, except for secrets and HOME, which defaults to the user's
  std::string user;                   // as in USER: "", "name", "1000", "name:group" …
  std::string working_directory;      // created if it is missing; "" is "/"
  std::vector<StepMount> mounts;
  Run::Network network = Run::Network::kDefault;  // kDefault is the host's, too
};

// A line of the command's output without its end; long lines come in pieces. Called on the thread that runs the step.
using OnStepLine = std::function<void(std::string_view line)>;

struct StepEnd {
  int exit_code = 0;
  int signal = 0;  // that killed the command, or 0
  bool success() const { return exit_code == 0 && signal == 0; }
  std::string text() const;  // "exit code 2", "killed by signal 9 (Killed)"
};

// Throws Error if the command cannot be started, and http::Stopped at a stop.
StepEnd run_in_sandbox(const SandboxStep& step, const OnStepLine& on_line, const std::stop_token& stop);

}  // namespace adaptdl::image
