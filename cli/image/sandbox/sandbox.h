// Runs the command of a RUN in an image's files, and collects the command's changes in an upper directory.
//
// The command runs in its own mount, process, IPC, cgroup and host name namespaces and its own session, with a subset
// of Docker's default capabilities and a clean environment. When the command ends, all processes that it started are
// killed, and everything is unmounted. If this process is killed, the command's processes are killed as well. The upper
// directory contains only the command's changes: mount points that were created for the step are removed.
//
// Threading: any thread may run a step, and several steps may run at a time; the calling thread waits for its step.
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

#include "image/dockerfile/run_mount.h"
#include "image/sandbox/overlay.h"

namespace adaptdl::image {

// A RUN's mount, and its contents.
struct StepMount {
  Mount mount;  // as in the step (run_mount.h)
  // For a bind or a cache: the directories in which `mount.source` and its links are resolved, topmost first. Changes
  // to a bind that is not read-only are discarded. Empty for a cache that begins empty.
  std::vector<std::filesystem::path> from;
  std::string content;  // a secret's content
};

struct SandboxStep {
  OverlayLayers root;             // the image's files; changes go to `root.upper`, a new directory
  std::filesystem::path scratch;  // a directory next to root.upper for this step only; the caller removes it
  std::filesystem::path caches;   // the directory of all cache mounts; created if needed
  std::vector<std::string> command;
  std::optional<std::string> script;  // stored as the file `command[0]`, in kScriptDirectory
  std::vector<Pair> environment;      // complete, except for secrets and HOME (default: the user's directory)
  std::string user;                   // as in USER: "", "name", "1000", "name:group" …
  std::string working_directory;      // created if it is missing; "" is "/"
  std::vector<StepMount> mounts;
  Run::Network network = Run::Network::kDefault;  // kDefault means the host's network, too
};

// Receives a line of the command's output, without the line end; long lines arrive in pieces. Called on the thread that
// runs the step.
using OnStepLine = std::function<void(std::string_view line)>;

struct StepEnd {
  int exit_code = 0;
  int signal = 0;  // the signal that killed the command, or 0
  bool success() const { return exit_code == 0 && signal == 0; }
  std::string text() const;  // "exit code 2", "killed by signal 9 (Killed)"
};

// Throws Error if the command cannot be started, and http::Stopped after a stop request.
StepEnd run_in_sandbox(const SandboxStep& step, const OnStepLine& on_line, const std::stop_token& stop);

}  // namespace adaptdl::image
