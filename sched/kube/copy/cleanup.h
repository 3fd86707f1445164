// Actions that must run however a copy ends.
//
// Threading: run_all may be called by any thread, at the end of the process, while others hold cleanups.
#pragma once

#include <functional>
#include <list>

namespace adaptdl::kube {

class Cleanup {
 public:
  // `action` must not throw.
  explicit Cleanup(std::function<void()> action);
  // Runs the action, unless it was run or released before.
  ~Cleanup();
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  void release();

  // Runs all pending actions, the newest first, for a process that cannot wait for its threads.
  static void run_all();

 private:
  std::list<std::function<void()>>::iterator entry_;
  bool held_ = true;
};

}  // namespace adaptdl::kube
