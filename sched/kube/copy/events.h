// What whoever asked for a copy is told while it goes on, and how it is stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "kube/copy/persistence.h"

namespace adaptdl::kube {

struct CopyEvents {
  std::stop_token stop;
  // Bytes copied so far, and in all where that is known. Called often.
  std::function<void(std::uint64_t done, std::optional<std::uint64_t> total)> progress;
  // What is worth to know, in a line; warnings of what was left out among it.
  std::function<void(const std::string&)> notice;
  // A connection broke, and the copy goes on.
  std::function<void(const std::string&)> trouble;
  std::chrono::milliseconds patience = Persistence::kPatience, first_pause = Persistence::kFirstPause;

  void say(const std::string& line) const {
    if (notice) notice(line);
  }
  void tell(std::uint64_t done, std::optional<std::uint64_t> total = {}) const {
    if (progress) progress(done, total);
  }
  Persistence persistence() const { return {stop, trouble, patience, first_pause}; }
};

}  // namespace adaptdl::kube
