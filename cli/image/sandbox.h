// Runs the command of a RUN in an image's files, and leaves what it changed in an upper directory.
//
// The command has mount, process, IPC and host name namespaces of its own, the capabilities that Docker gives, a clean
// environment and a session. When it has ended, so have all that it started, and nothing is mounted any more; when this
// process is killed, they end with it. In the upper directory are the command's changes alone: what was made only to
// mount something on is gone.
//
// Threading: any thread, several steps at a time; a step is run by the thread that calls, which waits.
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

// A mount of a RUN, with what it needs.
struct StepMount {
  Mount mount;  // as the step has it (dockerfile.h), expanded
  // Of a bind or a cache: the directories that `mount.source` is looked up in, the topmost first, links within them.
  // What is written to a bind that is not read-only is thrown away. None for a cache: it begins empty.
  std::vector<std::filesystem::path> from;
  std::string content;  // of a secret
};

struct SandboxStep {
  OverlayLayers root;             // the image's files; the command's changes go to `root.upper`, a new directory
  std::filesystem::path scratch;  // a directory of this step alone, which the caller removes; near the upper one
  std::filesystem::path caches;   // the directory of all cache mounts; made if one is needed
  std::vector<std::string> command;
  std::optional<std::string> script;  // becomes the file `command[0]`, in kScriptDirectory
  std::vector<Pair> environment;      // all of it, but for secrets and HOME, which is the user's if not given
  std::string user;                   // as in USER: "", "name", "1000", "name:group" …
  std::string working_directory;      // made if it is missing; "" is "/"
  std::vector<StepMount> mounts;
  Run::Network network = Run::Network::kDefault;  // which is the host's too
};

// A line of the command's output without its end; a long one comes in pieces. Called by the thread that runs the step.
using OnStepLine = std::function<void(std::string_view line)>;

struct StepEnd {
  int exit_code = 0;
  int signal = 0;  // that killed it, or 0
  bool success() const { return exit_code == 0 && signal == 0; }
  std::string text() const;  // "exit code 2", "killed by signal 9 (Killed)"
};

// Throws Error if the command could not be started, http::Stopped if it was stopped.
StepEnd run_in_sandbox(const SandboxStep& step, const OnStepLine& on_line, const std::stop_token& stop);

}  // namespace adaptdl::image
