// Implements `adaptdl run --detach`: a launcher that continues in the background once its replicas have started.
//
// The process forks. The child becomes the launcher, in a session of its own, without the terminal, and ignores SIGHUP.
// The parent waits until the replicas have started, and prints what the child reports.
#pragma once

#include <functional>
#include <string>

#include "base/fd.h"

namespace adaptdl::cli {

// The child's report to its parent, which is sent once.
class StartReport {
 public:
  explicit StartReport(Fd to) : to_(std::move(to)) {}

  void started(const std::string& name);
  void failed(const std::string& why, int exit_code);
  int fd() const noexcept { return to_.get(); }
  bool given() const noexcept { return !to_; }

 private:
  void say(const std::string& text);

  Fd to_;
};

// Calls `run` in the child and returns its exit code there. In the parent, prints the run's name and returns 0 once the
// run has started; if `run` throws before that, throws a UsageError or Error with the same message. REQUIRES that the
// process has only one thread.
int run_detached(const std::function<int(StartReport&)>& run);

}  // namespace adaptdl::cli
