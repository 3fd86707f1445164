// Requests to the supervisor for generations.
//
// Threading: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "adaptdl/generation.h"

namespace adaptdl::generation {

struct Question {
  int after = 0;
  std::string replica;  // the replica that is blocked until the answer arrives; empty if none is
  bool broken = false;  // whether the group of `replica` is broken
  bool trains = false;  // whether all members of generation `after` are training
  std::chrono::seconds timeout{30};
};

// Returns the next generation, or nullopt if there was none within the timeout. Throws http::ConnectionError if no
// answer arrives, and Error, naming the URL, if the answer is invalid.
std::optional<Generation> ask(const Question& question);

// Repeats the request until there is a next generation. Throws Error if no answer arrives for five minutes or if an
// answer is invalid.
Generation ask_until_answered(Question question);

}  // namespace adaptdl::generation
