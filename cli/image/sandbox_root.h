// The file tree of a step: its root, and everything that is mounted in it.
//
// Threading: for a process with one thread and its own mount namespace. All functions throw Error.
#pragma once

#include <string>
#include <vector>

#include "image/mount_points.h"
#include "image/sandbox.h"

namespace adaptdl::image {

inline constexpr const char* kSandboxHost = "build";

// Paths of created mount points: first those in the root's upper directory, then those in each cache mount, relative to
// it. Mount points in a tmpfs or a temporary overlay need no removal and are not listed.
using MadePaths = std::vector<std::vector<std::string>>;

struct EnteredRoot {
  MadePaths made;
  net::Fd starter;  // the program of step_exec.h, a copy in memory for this step
};

// Mounts the step's root and everything in it, and makes it the root directory of this process; the previous one is
// unmounted. `caches` are the directories of the cache mounts, in their order.
EnteredRoot enter_root(const SandboxStep& step, const std::vector<std::string>& caches);

}  // namespace adaptdl::image
