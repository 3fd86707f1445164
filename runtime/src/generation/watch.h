// The thread that waits for the next generation during training.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "adaptdl/generation.h"

namespace adaptdl::generation {

// The thread starts with the first request and never ends. Threading: all functions may be called from any
// thread.
class Watch {
 public:
  static Watch& instance();

  // Returns the newest known generation after generation `after`, and keeps requesting newer ones until rest() is
  // called. `trains` states whether all members of generation `after` are training; if not, it is still forming.
  std::optional<Generation> newest(int after, bool trains);
  // Stops requesting once the pending request is answered.
  void rest();

 private:
  Watch() = default;
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::optional<int> after_;  // nullopt while at rest
  bool trains_ = false;
  std::optional<Generation> newest_;
};

}  // namespace adaptdl::generation
