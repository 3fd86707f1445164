// Decides how long a copy is retried while its connection keeps breaking: as long as the copy makes some progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "kube/copy/shell.h"

namespace adaptdl::kube {

class Persistence {
 public:
  using Notice = std::function<void(const std::string&)>;
  static constexpr auto kPatience = std::chrono::seconds(60);
  // The pause doubles after each break without progress.
  static constexpr auto kFirstPause = std::chrono::milliseconds(100);

  Persistence(std::stop_token stop, Notice notice, std::chrono::milliseconds patience = kPatience,
              std::chrono::milliseconds first_pause = kFirstPause)
      : stop_(std::move(stop)), notice_(std::move(notice)), patience_(patience), first_pause_(first_pause) {}

  // Call this after a break, with the total number of bytes copied so far. Waits for a moment, or throws an Error with
  // `why` if there has been no progress for too long.
  void wait(const Broken& why, std::uint64_t bytes);
  // Does the same after a break in an operation that copies no bytes.
  void wait(const Broken& why) { wait(why, bytes_); }

 private:
  std::stop_token stop_;
  Notice notice_;
  std::chrono::milliseconds patience_, first_pause_;
  std::uint64_t bytes_ = 0;
  int breaks_ = 0;  // breaks since the last progress
  std::chrono::steady_clock::time_point since_{};
};

// Repeats `action` until it completes without a broken connection.
template <typename Action>
auto persist(Persistence& persistence, const Action& action) {
  for (;;) {
    try {
      return action();
    } catch (const Broken& broken) {
      persistence.wait(broken);
    }
  }
}

}  // namespace adaptdl::kube
