// A step's command, as it begins.
//
// Threading: for a process of one thread, in the step's root.
#pragma once

#include "image/sandbox.h"
#include "image/user_names.h"

namespace adaptdl::image {

// The user that the step names, by the root's own files. Throws Error.
UserIds step_user(const SandboxStep& step);

// Gives its rights up, and becomes the command, with `output` as its standard output and error. Throws Error that says
// why it cannot.
[[noreturn]] void become_command(const SandboxStep& step, const UserIds& user, int output);

}  // namespace adaptdl::image
