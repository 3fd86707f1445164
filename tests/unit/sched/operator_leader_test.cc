// Tests the rules by which one of several operators acquires and holds the lease.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "kube/api/json_fields.h"
#include "operator/cluster/leader_election.h"

namespace operator_leader_test {

using namespace adaptdl::sched;
using namespace std::chrono_literals;
using adaptdl::kube::text_field;
using nlohmann::json;

namespace {

using Clock = LeaseRules::Clock;

const Clock::time_point kStart = Clock::time_point() + 1h;
const adaptdl::kube::Time kWall = *adaptdl::kube::parse_time("2026-11-21T12:10:00Z");

// A lease as the API server stores it.
struct Store {
  json lease;
  int version = 0;

  // Returns whether the version that was read is still the stored one.
  bool write(json changed, const json& read) {
    if (read != lease) return false;
    lease = std::move(changed);
    lease["metadata"]["resourceVersion"] = std::to_string(++version);
    return true;
  }
  std::string holder() const { return text_field(lease, {"spec", "holderIdentity"}); }
};

LeaseRules rules(const std::string& identity) {
  return LeaseRules({.name_space = "ns", .name = "operator", .identity = identity});
}

// Attempts to acquire or renew the lease at the time `now`; the attempt itself takes no time. Returns whether the lease
// was written.
bool attempt(LeaseRules& operator_rules, Store& store, Clock::time_point now) {
  const json read = store.lease;
  const auto mine = operator_rules.next(read, now, kWall);
  if (!mine || !store.write(*mine, read)) return false;
  operator_rules.written(now);
  return true;
}

}  // namespace

TEST_CASE("the first operator acquires the lease, and others must wait until it expires") {
  Store store;
  LeaseRules a = rules("a"), b = rules("b");
  CHECK_FALSE(a.held_until());
  CHECK(attempt(a, store, kStart));
  CHECK(a.held_until() == kStart + 6s);
  CHECK(text_field(store.lease, {"metadata", "name"}) == "operator");
  CHECK(store.lease["spec"] == json{{"holderIdentity", "a"},
                                    {"leaseDurationSeconds", 10},
                                    {"leaseTransitions", 0},
                                    {"acquireTime", "2026-11-21T12:10:00.000000Z"},
                                    {"renewTime", "2026-11-21T12:10:00.000000Z"}});
  CHECK_FALSE(attempt(b, store, kStart + 1s));
  CHECK(attempt(a, store, kStart + 2s));
  // The lease expires by b's own clock, counted from when b first observed the last renewal.
  CHECK_FALSE(attempt(b, store, kStart + 9s));
  CHECK_FALSE(attempt(b, store, kStart + 19s - 1ms));
  CHECK(attempt(b, store, kStart + 19s));
  CHECK(store.holder() == "b");
  CHECK(store.lease["spec"]["leaseTransitions"] == 1);
  CHECK_FALSE(attempt(a, store, kStart + 20s));
}

TEST_CASE("the holder's lease duration applies if it is longer than that of the waiting operator") {
  Store store;
  LeaseRules a = rules("a"), b({.name_space = "ns", .name = "operator", .identity = "b", .duration = 30s});
  CHECK(attempt(b, store, kStart));
  CHECK_FALSE(attempt(a, store, kStart));
  CHECK_FALSE(attempt(a, store, kStart + 29s));
  CHECK(attempt(a, store, kStart + 30s));
}

TEST_CASE("another operator acquires a deleted lease only after it would have expired") {
  Store store;
  LeaseRules a = rules("a"), b = rules("b");
  CHECK(attempt(a, store, kStart));
  CHECK_FALSE(attempt(b, store, kStart + 1s));
  store.lease = json();
  CHECK_FALSE(attempt(b, store, kStart + 2s));
  CHECK_FALSE(attempt(b, store, kStart + 11s - 1ms));
  SUBCASE("the holder recreates it") {
    CHECK(attempt(a, store, kStart + 3s));
    CHECK(store.holder() == "a");
  }
  SUBCASE("the holder is dead") {
    CHECK(attempt(b, store, kStart + 11s));
    CHECK(store.holder() == "b");
  }
}

TEST_CASE("a restarted holder acquires its lease again at once, and other operators acquire a released lease at once") {
  Store store;
  LeaseRules a = rules("a"), again = rules("a"), b = rules("b");
  CHECK(attempt(a, store, kStart));
  CHECK(attempt(again, store, kStart + 1s));
  CHECK_FALSE(b.released(store.lease));
  const auto free = again.released(store.lease);
  REQUIRE(free);
  CHECK(store.write(*free, store.lease));
  CHECK(attempt(b, store, kStart + 1s));
  CHECK_FALSE(again.released(store.lease));
}

TEST_CASE("a lease with missing or invalid fields is acquired after at most one lease duration") {
  for (const json& spec : std::vector<json>{json(),
                                            json::object(),
                                            "x",
                                            {{"holderIdentity", 7}},
                                            {{"holderIdentity", "x"}, {"leaseDurationSeconds", "y"}}}) {
    Store store;
    store.lease = {{"metadata", {{"resourceVersion", "1"}}}, {"spec", spec}};
    LeaseRules a = rules("a");
    attempt(a, store, kStart);
    if (!a.held_until()) CHECK(attempt(a, store, kStart + 10s));
    CHECK(store.holder() == "a");
  }
}

namespace {

void check_histories(unsigned count) {
  for (unsigned seed = 0; seed < count; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    Store store;
    struct Operator {
      LeaseRules rules;
      json read;
      std::optional<json> mine;
      Clock::time_point asked;
      int step = 0;  // 0: idle, 1: has read, 2: has written
      bool dead = false;
    };
    std::vector<Operator> operators;
    for (const char* name : {"a", "b", "c"}) operators.push_back({rules(name), {}, {}, {}, 0, false});
    Clock::time_point now = kStart, led = kStart;
    for (int i = 0; i < 3000; ++i) {
      now += std::chrono::milliseconds(below(300));
      Operator& each = operators[static_cast<std::size_t>(below(3))];
      if (each.dead || (each.rules.held_until() && now >= *each.rules.held_until())) {
        // The process exits at its deadline. A new process with another identity replaces it.
        each.dead = below(4) != 0;
        const std::string name(1, static_cast<char>('a' + (&each - operators.data())));
        if (!each.dead) each = {rules(name + std::to_string(i)), {}, {}, {}, 0, false};
      } else if (each.step == 0) {
        each.read = store.lease;
        each.mine = each.rules.next(each.read, now, kWall);
        each.asked = now;
        each.step = each.mine ? 1 : 0;
      } else if (each.step == 1) {
        if (below(10) == 0) {
          each.dead = true;
        } else if (below(10) == 0 || !store.write(*each.mine, each.read)) {
          each.step = 0;  // the request was lost, or another one came first
        } else {
          each.step = 2;
        }
      } else {
        if (below(10) != 0) each.rules.written(each.asked);  // otherwise, the response was lost
        each.step = 0;
      }
      int holders = 0;
      for (const Operator& one : operators)
        holders += !one.dead && one.rules.held_until() && now < *one.rules.held_until() ? 1 : 0;
      REQUIRE_MESSAGE(holders <= 1, "step ", i);
      if (holders == 1) led = now;
      REQUIRE_MESSAGE(now - led < 60s, "step ", i);
    }
  }
}

}  // namespace

TEST_CASE("despite delayed and lost requests, the lease has at most one holder, and dead holders are replaced" *
          doctest::test_suite("slow")) {
  check_histories(15);
}

TEST_CASE("in a thousand random histories, the lease has at most one holder at a time" * doctest::test_suite("full")) {
  check_histories(1000);
}

}  // namespace operator_leader_test
