// Whether, and when, a call to an API server is made once more.
//
// Pure functions, so that the rules can be tested without a server.
#pragma once

#include <chrono>
#include <optional>

namespace adaptdl::kube {

// How a call has failed.
struct Failure {
  bool read = false;      // the call changes nothing
  bool answered = false;  // else the connection failed
  bool sent = false;      // not answered, but the server may have got it
  int status = 0;         // of the answer
  std::optional<std::chrono::seconds> retry_after;
};

struct RetryRule {
  std::chrono::milliseconds patience;  // from the first try to the start of the last
  std::chrono::milliseconds first = std::chrono::milliseconds(100), most = std::chrono::milliseconds(2000);
};

// The pause before the next try, or none if there is to be none. `attempt` counts from 1, `elapsed` is since the first
// began, `random` from 0 to 1 spreads many clients of a server that comes back.
std::optional<std::chrono::milliseconds> retry_pause(const RetryRule& rule, const Failure& failure, int attempt,
                                                     std::chrono::milliseconds elapsed, double random);

}  // namespace adaptdl::kube
