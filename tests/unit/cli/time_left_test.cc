#include "view/time_left.h"

#include <doctest/doctest.h>

namespace time_left_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using cli::TimeLeft;

namespace {

sched::RunStatus status(double progress, double target, int replicas = 1) {
  sched::RunStatus status;
  status.replicas = replicas;
  status.progress = {{"progress", progress}, {"targetProgress", target}};
  return status;
}

constexpr TimeLeft::Time kStart{1h};

}  // namespace

TEST_CASE("the time left is estimated from the speed so far and counts down between reports") {
  TimeLeft left;
  CHECK(left.update(status(10, 100), kStart) == std::nullopt);
  CHECK(left.update(status(10, 100), kStart + 5s) == std::nullopt);
  CHECK(left.update(status(20, 100), kStart + 10s) == 80s);
  CHECK(left.update(status(20, 100), kStart + 15s) == 75s);
  CHECK(left.update(status(40, 100), kStart + 20s) == 40s);
  CHECK(left.update(status(40, 100), kStart + 500s) == 0s);
  CHECK(left.update(status(100, 100), kStart + 501s) == 0s);
}

TEST_CASE("a change of replicas or a restart from a checkpoint resets the estimate of the time left") {
  TimeLeft left;
  left.update(status(0, 100), kStart);
  CHECK(left.update(status(50, 100), kStart + 50s) == 50s);
  CHECK(left.update(status(50, 100, 2), kStart + 51s) == std::nullopt);
  CHECK(left.update(status(60, 100, 2), kStart + 56s) == 20s);
  CHECK(left.update(status(40, 100, 2), kStart + 57s) == std::nullopt);
}

TEST_CASE("a program's own estimate of the time left is used if it is valid") {
  TimeLeft left;
  sched::RunStatus reported;
  reported.progress = {{"remaining_s", 12.5}};
  CHECK(left.update(reported, kStart) == 12500ms);
  reported.progress = {{"remaining_s", -1}};
  CHECK(left.update(reported, kStart) == std::nullopt);
  reported.progress = {{"remaining_s", 1e300}};
  CHECK(left.update(reported, kStart) == std::nullopt);
  reported.progress = {{"progress", "half"}, {"targetProgress", 100}};
  CHECK(left.update(reported, kStart) == std::nullopt);
  CHECK(left.update({}, kStart) == std::nullopt);
}

}  // namespace time_left_test
