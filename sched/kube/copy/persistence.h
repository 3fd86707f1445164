// How long a copy goes on trying over a connection that breaks: as long as something gets through now and then.
//
// Threading: used by one thread at a time.
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
  // Each break after which nothing got through doubles it.
  static constexpr auto kFirstPause = std::chrono::milliseconds(100);

  Persistence(std::stop_token stop, Notice notice, std::chrono::milliseconds patience = kPatience,
              std::chrono::milliseconds first_pause = kFirstPause)
      : stop_(std::move(stop)), notice_(std::move(notice)), patience_(patience), first_pause_(first_pause) {}

  // To be called after a break, with how many bytes have got through in all: waits a little, or throws an Error with
  // `why` if nothing has for too long.
  void wait(const Broken& why, std::uint64_t bytes);
  // The same where nothing was to get through.
  void wait(const Broken& why) { wait(why, bytes_); }

 private:
  std::stop_token stop_;
  Notice notice_;
  std::chrono::milliseconds patience_, first_pause_;
  std::uint64_t bytes_ = 0;
  int breaks_ = 0;  // since something got through
  std::chrono::steady_clock::time_point since_{};
};

// Calls `action` until the connection lasts for it.
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
