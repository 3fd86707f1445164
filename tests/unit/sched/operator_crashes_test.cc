// Runs the life cycle in a simulated cluster, in which the operator may crash between any two API calls.
#include <doctest/doctest.h>

#include "operator_cluster.h"
#include "operator_storm.h"

namespace operator_crashes_test {

using namespace adaptdl::sched;
using namespace adaptdl::sched::testing;

TEST_CASE("after a crash at any point, the next operator starts the same groups" * doctest::test_suite("slow")) {
  const int points = for_each_crash<Cluster>([](Cluster& cluster) {
    decide(cluster, {"a", "a", "b"});
    run_all(cluster);
    CHECK(cluster.group() == 0);
    decide(cluster, {"b", "c"});
    run_all(cluster);
    CHECK(cluster.group() == 1);
    cluster.end(cluster.pods[1], PodEnd::kLost);
    cluster.sync();
    run_all(cluster);
    CHECK(cluster.group() == 2);
    for (PodFacts& pod : cluster.pods) cluster.end(pod, PodEnd::kSucceeded);
    cluster.sync();
    CHECK(cluster.phase() == "Succeeded");
    cluster.sync();
    CHECK(cluster.pods.size() == 2);
  });
  CHECK(points > 20);
}

TEST_CASE("after a crash at any point, the next operator still fails a job whose replica has failed") {
  for_each_crash<Cluster>([](Cluster& cluster) {
    decide(cluster, {"a", "a"});
    run_all(cluster);
    cluster.failure_counts = true;
    cluster.end(cluster.pods[1], PodEnd::kFailed);
    cluster.sync();
    CHECK(cluster.phase() == "Failed");
    cluster.all_progress();
    cluster.sync();
    CHECK(std::ranges::none_of(cluster.pods, &PodFacts::live));
  });
}

TEST_CASE("random failures and operator crashes never leave two live groups or a stuck job" *
          doctest::test_suite("slow")) {
  int groups = 0;
  std::map<std::string, int> phases;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Cluster cluster;
    Storm storm(seed, cluster);
    storm.rage(250);
    ++phases[cluster.phase()];
    storm.calm();
    groups += cluster.group();
  }
  // The random events are frequent enough, and leave jobs in various phases.
  CHECK(groups > 100);
  CHECK(phases["Failed"] < 15);
  CHECK(phases.size() >= 4);
}

}  // namespace operator_crashes_test
