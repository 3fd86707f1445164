// Asking the supervisor for generations.
//
// Threading: the functions keep no state and may be called from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "adaptdl/generation.h"

namespace adaptdl::generation {

struct Question {
  int after = 0;
  std::string replica;  // who waits for it, and does nothing else; empty: nobody does
  bool broken = false;  // its group is broken
  bool trains = false;  // all members of generation `after` train
  std::chrono::seconds timeout{30};
};

// The next generation, or none if there was none within the timeout. Throws http::ConnectionError if no answer came,
// and Error, naming the URL, on an answer that makes no sense.
std::optional<Generation> ask(const Question& question);

// Asks until there is one. Throws Error if no answer came for five minutes, or one that makes no sense.
Generation ask_until_answered(Question question);

}  // namespace adaptdl::generation
