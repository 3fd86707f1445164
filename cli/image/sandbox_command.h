// A step's command, as it begins.
//
// Threading: for a process of one thread, in the step's root.
#pragma once

#include "image/sandbox.h"
#include "image/user_names.h"

namespace adaptdl::image {

// The user that the step names, by the root's own files. Throws Error.
UserIds step_user(const SandboxStep& step);

// Makes the step's working directory if it is missing. Throws Error.
void make_working_directory(const SandboxStep& step);

// The descriptor of CommandFiles::trouble from the beginning of become_command() on.
inline constexpr int kTroubleFd = 3;

struct CommandFiles {
  int output = -1;   // becomes its standard output and error
  int trouble = -1;  // where it is written why the command could not begin
  int starter = -1;  // the program of step_exec.h
};

// Closes all descriptors but these, gives its rights up, and becomes the command by way of the starter. Throws Error
// that says why it cannot, to be written to kTroubleFd.
[[noreturn]] void become_command(const SandboxStep& step, const UserIds& user, const CommandFiles& files);

}  // namespace adaptdl::image
