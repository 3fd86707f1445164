// Tries once more what may well succeed a little later.
//
// Threading: a Retrier belongs to one thread.
#pragma once

#include <chrono>
#include <stop_token>

namespace adaptdl::image {

struct RetryRule {
  int tries = 6;  // in a row that come to nothing, the first among them
  std::chrono::milliseconds first = std::chrono::milliseconds(300), most = std::chrono::seconds(10);
  // A server that asks for a longer pause is not waited for.
  std::chrono::seconds longest_asked = std::chrono::seconds(120);
};

class Retrier {
 public:
  Retrier(const RetryRule& rule, std::stop_token stop) : rule_(rule), stop_(std::move(stop)) {}

  // REQUIRES: in a handler of an exception. Throws it again if it cannot pass, or there have been enough tries; else
  // returns after a pause that grows from try to try. Throws http::Stopped at a stop.
  void wait();
  // Something was achieved: the tries are counted anew.
  void progressed() { failed_ = 0; }

 private:
  const RetryRule rule_;
  const std::stop_token stop_;
  int failed_ = 0;
};

}  // namespace adaptdl::image
