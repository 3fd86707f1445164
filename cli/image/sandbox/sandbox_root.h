// A step's file tree: its root, and everything that is mounted in it.
//
// Threading: the process must have one thread and its own mount namespace. All functions throw Error.
#pragma once

#include <string>
#include <vector>

#include "image/sandbox/mount_points.h"
#include "image/sandbox/sandbox.h"

namespace adaptdl::image {

inline constexpr const char* kSandboxHost = "build";

// The paths of created mount points: first a list for the root's upper directory, then one list per cache mount, with
// paths relative to that mount. Mount points in a tmpfs or a temporary overlay need no removal and are not listed.
using MadePaths = std::vector<std::vector<std::string>>;

struct EnteredRoot {
  MadePaths made;
  Fd starter;  // the program in step_exec.h, copied to memory for this step
};

// Mounts the step's root and everything in it, and makes the step's root this process's root directory; the previous
// root is unmounted. `caches` are the cache mounts' directories, in order.
EnteredRoot enter_root(const SandboxStep& step, const std::vector<std::string>& caches);

}  // namespace adaptdl::image
