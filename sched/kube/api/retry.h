// Decides whether, and when, a call to an API server is retried. retry_pause() is a pure function, so that the
// rules can be tested without a server.
#pragma once

#include <chrono>
#include <optional>

namespace adaptdl::kube {

// Describes how a call failed.
struct Failure {
  bool read = false;      // the call changes nothing
  bool answered = false;  // false: the connection failed
  bool sent = false;      // no response arrived, but the server may have received the call
  int status = 0;         // HTTP status of the answer
  std::optional<std::chrono::seconds> retry_after;
};

struct RetryRule {
  std::chrono::milliseconds patience;  // maximum time from the start of the first attempt to the start of the last one
  std::chrono::milliseconds first = std::chrono::milliseconds(100), max = std::chrono::milliseconds(2000);
};

// Returns the pause before the next attempt; nullopt if the call must not be retried. `attempt` counts from 1,
// `elapsed` is the time since the first attempt began, and `random`, from 0 to 1, spreads the retries of many clients
// when a server becomes available again.
std::optional<std::chrono::milliseconds> retry_pause(const RetryRule& rule, const Failure& failure, int attempt,
                                                     std::chrono::milliseconds elapsed, double random);

}  // namespace adaptdl::kube
