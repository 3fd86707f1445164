#include "local/launch/restart_budget.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <string>

namespace restart_budget_test {

using namespace adaptdl::sched;
using namespace std::chrono_literals;

namespace {

const RestartBudget::Time kStart{1h};
constexpr ExitStatus kExit3{.signalled = false, .code = 3};
constexpr ExitStatus kCrash{.signalled = true, .code = SIGSEGV};

ReplicaEnd failure(const ExitStatus& status, const std::string& last_line) {
  return {.status = status, .last_lines = {"loading", last_line}};
}

}  // namespace

TEST_CASE("the budget allows exactly its maximum number of failures") {
  RestartBudget budget(2);
  CHECK(budget.spend());
  CHECK(budget.spend());
  CHECK_FALSE(budget.spend());
  CHECK(budget.used() == 2);
  CHECK_FALSE(RestartBudget(0).spend());
}

TEST_CASE("the pause doubles up to a maximum and resets after a minute without failure") {
  RestartBudget budget(0);
  auto now = kStart;
  for (const auto expected : {500ms, 1000ms, 2000ms, 4000ms, 8000ms, 10000ms, 10000ms}) {
    CHECK(budget.back_off(now) == expected);
    now += 59s;
  }
  CHECK(budget.back_off(now + 1s) == 500ms);
}

TEST_CASE("a restart is useless if the same failure occurred twice before any training") {
  RestartBudget budget(9);
  CHECK_FALSE(budget.in_vain(failure(kExit3, "no such file"), false));
  CHECK(budget.in_vain(failure(kExit3, "no such file"), false));
}

TEST_CASE("a restart is not useless if failures differ, follow training or have no output") {
  RestartBudget budget(9);
  CHECK_FALSE(budget.in_vain(failure(kExit3, "no such file"), false));
  CHECK_FALSE(budget.in_vain(failure(kExit3, "no memory"), false));
  CHECK_FALSE(budget.in_vain(failure(kCrash, "no memory"), false));
  CHECK_FALSE(budget.in_vain(failure(kCrash, "no memory"), true));
  CHECK_FALSE(budget.in_vain(failure(kCrash, "no memory"), false));
  RestartBudget silent(9);
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(silent.in_vain(failure(kExit3, ""), false));
    CHECK_FALSE(silent.in_vain({.status = kExit3}, false));
  }
}

TEST_CASE("a restart is not useless if replicas were lost twice together with their nodes") {
  RestartBudget budget(9);
  ReplicaEnd lost = failure({.signalled = true, .code = SIGKILL}, "waiting for the other replicas");
  lost.lost = true;
  CHECK_FALSE(budget.in_vain(lost, false));
  CHECK_FALSE(budget.in_vain(lost, false));
}

}  // namespace restart_budget_test
