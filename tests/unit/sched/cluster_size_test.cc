// Tests the desired number of nodes: it keeps the utility near the middle of its range, and is found in a few steps.
#include "policy/search/cluster_size.h"

#include <doctest/doctest.h>

#include <set>

namespace cluster_size_test {

using namespace adaptdl::sched;

namespace {

// Returns the desired size of a cluster that has `now` nodes and may grow to twice as many, if its utility is 1 for up
// to `ideal` nodes.
int desired(int now, double ideal, int min_nodes = 0, int* asked = nullptr) {
  int count = 0;
  const int nodes = desired_nodes(now, min_nodes, 2 * now, {}, [&](int n) {
    ++count;
    return n <= ideal ? 1.0 : ideal / n;
  });
  if (asked) *asked = count;
  return nodes;
}

}  // namespace

TEST_CASE("a well-utilized cluster keeps its size") {
  CHECK(desired(16, 8) == 16);
  CHECK(desired(16, 10) == 16);
  CHECK(desired(16, 6) == 16);
}

TEST_CASE("an overutilized cluster grows, but not beyond its maximum size") {
  CHECK(desired(16, 14) == 28);
  CHECK(desired(16, 100) == 32);
  CHECK(desired(1, 100) == 2);
}

TEST_CASE("an underutilized cluster shrinks, but not below its minimum size") {
  CHECK(desired(16, 2) == 4);
  CHECK(desired(16, 0.3) == 1);
  CHECK(desired(16, 2, 9) == 9);
}

TEST_CASE("a cluster without load shrinks to its minimum size") {
  CHECK(desired(16, 0) == 0);
  CHECK(desired(16, 0, 3) == 3);
}

TEST_CASE("the size is found by bisection") {
  int asked = 0;
  desired(4096, 3500, 0, &asked);
  CHECK(asked <= 15);
  desired(4096, 3, 0, &asked);
  CHECK(asked <= 15);
}

}  // namespace cluster_size_test
