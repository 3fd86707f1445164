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

// Makes the step's root this process's, with everything mounted; of the tree of before nothing remains. `caches` are
// the directories of the cache mounts, in their order.
MountPoints enter_root(const SandboxStep& step, const std::vector<std::string>& caches);

}  // namespace adaptdl::image
