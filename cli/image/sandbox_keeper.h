// The outside of a sandbox: the process between the builder and process 1 of a step.
//
// The builder forks a keeper, which makes namespaces, starts process 1 in them (sandbox_init.h) and waits for its end.
// It stays in the machine's files, gives process 1 its ids, and afterwards removes what was made only to mount
// something on. Each process is killed with the one above it.
//
// Threading: for a process that was just forked, and has one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "image/sandbox.h"
#include "socket.h"

namespace adaptdl::image {

// What the inside needs, made before the fork.
struct SandboxPlan {
  const SandboxStep* step = nullptr;
  std::vector<std::string> caches;  // directories of the step's cache mounts, in their order
  pid_t builder = 0;                // the thread's process
  net::Fd output;                   // the command's
  net::Fd report;                   // from the keeper to the builder, as below
};

// What the builder is told: one of these and, after kFailed, a text; after kEnded, the command's wait status. Nothing:
// process 1 was killed.
inline constexpr char kFailed = 'F', kEnded = 'E';

// A message between the keeper and process 1: its first byte is one of these or of those above. From process 1: all is
// mounted, then the MadePaths, each with a zero byte after it, and one more after those of a directory. Back: the ids
// are there, and the command may begin.
inline constexpr char kInPlace = 'M', kGo = 'G';
void send_message(int channel, const std::string& text);
// "" at the end of the channel.
std::string receive_message(int channel);

// The keeper's whole life. All signals are blocked.
[[noreturn]] void keep_sandbox(SandboxPlan plan);

}  // namespace adaptdl::image
