// `adaptdl run --detach`: a launcher that is left alone once its replicas have started.
//
// The command forks. The child becomes the launcher, in a session of its own, without the terminal and deaf to SIGHUP;
// the parent waits until the replicas have started, and says what the child says.
#pragma once

#include <functional>
#include <string>

#include "local/fd.h"

namespace adaptdl::cli {

// The child's word to its parent, given once.
class StartReport {
 public:
  explicit StartReport(sched::Fd to) : to_(std::move(to)) {}

  void started(const std::string& name);
  void failed(const std::string& why, int exit_code);
  int fd() const noexcept { return to_.get(); }
  bool given() const noexcept { return !to_; }

 private:
  void say(const std::string& text);

  sched::Fd to_;
};

// Calls `run` in the child and returns its exit code there. In the parent: prints the run's name and returns 0 when the
// run has started; throws UsageError or Error with the message of the one that `run` threw before. REQUIRES that the
// process has one thread.
int run_detached(const std::function<int(StartReport&)>& run);

}  // namespace adaptdl::cli
