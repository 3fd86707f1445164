// Starts a step's command.
//
// Threading: the process must have only one thread, and be in the step's root.
#pragma once

#include "image/layer/user_names.h"
#include "image/sandbox/sandbox.h"

namespace adaptdl::image {

// Returns the user that the step names, according to /etc/passwd and /etc/group in the image. Throws Error.
UserIds step_user(const SandboxStep& step);

// Creates the step's working directory if it is missing. Throws Error.
void make_working_directory(const SandboxStep& step);

// become_command() moves CommandFiles::trouble to this descriptor.
inline constexpr int kTroubleFd = 3;

struct CommandFiles {
  int output = -1;   // becomes the command's standard output and error
  int trouble = -1;  // pipe for the reason why the command cannot start
  int starter = -1;  // the program in step_exec.h
};

// Closes all other descriptors, drops privileges, and executes the command through the starter. On failure, throws
// Error; the caller writes the error to kTroubleFd.
[[noreturn]] void become_command(const SandboxStep& step, const UserIds& user, const CommandFiles& files);

}  // namespace adaptdl::image
