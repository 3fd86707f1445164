// The file tree of a step: its root, and all that is mounted in it.
//
// Threading: for a process of one thread that has a mount namespace of its own. Throws Error.
#pragma once

#include <string>
#include <vector>

#include "image/mount_points.h"
#include "image/sandbox.h"

namespace adaptdl::image {

inline constexpr const char* kSandboxHost = "build";

// What was made to mount something on, by the directory that it is in: the root's upper one is in front, then those of
// the cache mounts, in their order. What is in a tmpfs, or in a bind whose changes are thrown away, is nowhere.
using MadePaths = std::vector<std::vector<std::string>>;

struct EnteredRoot {
  MadePaths made;
  net::Fd starter;  // the program of step_exec.h, in memory of this step alone
};

// Makes the step's root this process's, with everything mounted; of the tree of before nothing remains. `caches` are
// the directories of the cache mounts, in their order.
EnteredRoot enter_root(const SandboxStep& step, const std::vector<std::string>& caches);

}  // namespace adaptdl::image
