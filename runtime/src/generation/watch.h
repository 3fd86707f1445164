// The thread that waits for the next generation beside training.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "adaptdl/generation.h"

namespace adaptdl::generation {

// Started at the first question, and never destroyed. Threading: callable from any thread.
class Watch {
 public:
  static Watch& instance();

  // The newest generation after this one that is known; asks for it from now on, until rest(). `trains`: all members of
  // generation `after` train, or else it is still forming.
  std::optional<Generation> newest(int after, bool trains);
  // Asks no more, once the question under way is answered.
  void rest();

 private:
  Watch() = default;
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::optional<int> after_;  // none: at rest
  bool trains_ = false;
  std::optional<Generation> newest_;
};

}  // namespace adaptdl::generation
