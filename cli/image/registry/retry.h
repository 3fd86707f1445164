// Retries operations after failures that may be transient.
#pragma once

#include <chrono>
#include <stop_token>

namespace adaptdl::image {

struct RetryRule {
  int tries = 6;  // maximum number of consecutive attempts without progress, including the first
  std::chrono::milliseconds first_pause = std::chrono::milliseconds(300), max_pause = std::chrono::seconds(10);
  // If a server requests a longer pause, the operation is not retried.
  std::chrono::seconds max_requested = std::chrono::seconds(120);
};

class Retrier {
 public:
  Retrier(const RetryRule& rule, std::stop_token stop) : rule_(rule), stop_(std::move(stop)) {}

  // REQUIRES: called from an exception handler. Rethrows the exception if the failure is permanent or no attempts are
  // left; otherwise, returns after a pause that grows with each attempt. Throws http::Stopped after a stop request.
  void wait();
  // Reports progress, which resets the number of attempts.
  void progressed() { failed_ = 0; }

 private:
  const RetryRule rule_;
  const std::stop_token stop_;
  int failed_ = 0;
};

}  // namespace adaptdl::image
