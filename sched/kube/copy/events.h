// Defines how a copy reports its progress to its caller, and how the caller stops it.
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
  // Receives the bytes copied so far, and the total if it is known. Called often.
  std::function<void(std::uint64_t done, std::optional<std::uint64_t> total)> progress;
  // Receives one-line notices, such as warnings about skipped entries.
  std::function<void(const std::string&)> notice;
  // Receives a line each time a connection is lost and the copy continues.
  std::function<void(const std::string&)> trouble;
  std::chrono::milliseconds patience = Persistence::kPatience, first_pause = Persistence::kFirstPause;

  void notify(const std::string& line) const {
    if (notice) notice(line);
  }
  void report(std::uint64_t done, std::optional<std::uint64_t> total = {}) const {
    if (progress) progress(done, total);
  }
  Persistence persistence() const { return {stop, trouble, patience, first_pause}; }
};

}  // namespace adaptdl::kube
