// Tests when a call to an API server is retried.
#include "kube/api/retry.h"

#include <doctest/doctest.h>

namespace kube_retry_test {

using namespace adaptdl::kube;
using namespace std::chrono_literals;

namespace {

const RetryRule kRule{8s};

bool again(const Failure& failure) { return retry_pause(kRule, failure, 1, 0ms, 0.5).has_value(); }

Failure answer(bool read, int status, std::optional<std::chrono::seconds> after = {}) {
  return {.read = read, .answered = true, .status = status, .retry_after = after};
}

}  // namespace

TEST_CASE("after a connection failure, reads are retried, and changes only if they were not sent") {
  CHECK(again({.read = true, .sent = true}));
  CHECK(again({.read = true, .sent = false}));
  CHECK(again({.read = false, .sent = false}));
  CHECK_FALSE(again({.read = false, .sent = true}));
}

TEST_CASE("a change is retried only on status 429, or 503 with a retry delay") {
  CHECK(again(answer(false, 429)));
  CHECK(again(answer(false, 503, 1s)));
  for (const int status : {500, 502, 503, 504, 400, 403, 404, 409, 422}) CHECK_FALSE(again(answer(false, status)));
}

TEST_CASE("a read is retried on status 429, 502, 503 or 504, or 500 with a retry delay") {
  for (const int status : {429, 502, 503, 504}) CHECK(again(answer(true, status)));
  CHECK(again(answer(true, 500, 1s)));
  for (const int status : {500, 400, 401, 403, 404, 410}) CHECK_FALSE(again(answer(true, status)));
}

TEST_CASE("retry delays double up to a limit, with a jitter of 25%") {
  const auto pause = [](int attempt, double random) {
    return *retry_pause(kRule, {.read = true}, attempt, 0ms, random);
  };
  CHECK(pause(1, 0.5) == 100ms);
  CHECK(pause(2, 0.5) == 200ms);
  CHECK(pause(3, 0.5) == 400ms);
  CHECK(pause(60, 0.5) == 2000ms);
  CHECK(pause(1, 0) == 75ms);
  CHECK(pause(1, 1) == 125ms);
}

TEST_CASE("the server's retry delay is observed in full, unless it exceeds the time limit") {
  CHECK(*retry_pause(kRule, answer(true, 429, 3s), 1, 0ms, 0) == 3s);
  CHECK(*retry_pause(kRule, answer(true, 429, 0s), 1, 0ms, 0.5) == 100ms);
  CHECK_FALSE(retry_pause(kRule, answer(true, 429, 9s), 1, 0ms, 0));
  CHECK_FALSE(retry_pause(kRule, answer(true, 429, 3s), 1, 5001ms, 0));
  CHECK_FALSE(retry_pause(kRule, {.read = true}, 1, 7950ms, 0.5));
}

}  // namespace kube_retry_test
