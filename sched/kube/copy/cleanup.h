// Actions that must run no matter how a copy ends.
//
// Threading: at the end of the process, any thread may call run_all while others hold cleanups.
#pragma once

#include <functional>
#include <list>

namespace adaptdl::kube {

class Cleanup {
 public:
  // `action` must not throw.
  explicit Cleanup(std::function<void()> action);
  // Runs the action, unless it has already run or been released.
  ~Cleanup();
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  void release();

  // Runs all pending actions, the newest first, for a process that exits without waiting for its threads.
  static void run_all();

 private:
  std::list<std::function<void()>>::iterator entry_;
  bool held_ = true;
};

}  // namespace adaptdl::kube
