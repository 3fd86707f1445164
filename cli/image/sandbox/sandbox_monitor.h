// A sandbox's monitor: the process between the builder and a step's process 1.
//
// The builder forks the monitor, which creates namespaces, starts process 1 in them (sandbox_init.h) and waits for it.
// The monitor stays in the machine's file system; it maps process 1's IDs and, at the end, removes the mount points
// that were created for the step. When one of these processes dies, the processes below it are killed.
//
// REQUIRES: the process has just been forked and has a single thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "image/sandbox/sandbox.h"

namespace adaptdl::image {

// A sandbox's inputs, prepared before the fork.
struct SandboxPlan {
  const SandboxStep* step = nullptr;
  std::vector<std::string> caches;  // directories of the step's cache mounts, in order
  pid_t builder = 0;                // the process that forks the monitor
  Fd output;                        // for the command's output
  Fd report;                        // from the monitor to the builder, in the format below
};

// A report to the builder: kFailed and a message, or kEnded and the command's wait status. An empty report means that
// process 1 was killed.
inline constexpr char kFailed = 'F', kEnded = 'E';

// Messages between the monitor and process 1, in addition to the report. kInPlace, from process 1: everything is
// mounted; the MadePaths follow, with a zero byte after each path and another after each list. kGo, to process 1: the
// IDs are mapped, and the command may start.
inline constexpr char kInPlace = 'M', kGo = 'G';
void send_message(int channel, const std::string& text);
// Returns "" at the end of the channel.
std::string receive_message(int channel);

// Runs the monitor. REQUIRES: all signals are blocked.
[[noreturn]] void monitor_sandbox(SandboxPlan plan);

}  // namespace adaptdl::image
