// Tests fronts, crowding distances and tournaments against their definitions.
#include "policy/search/nsga2.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>

namespace nsga2_test {

using namespace adaptdl::sched::nsga2;

namespace {

std::vector<Objectives> random_points(Random& random, int count, std::uint32_t values) {
  std::vector<Objectives> points;
  for (int i = 0; i < count; ++i)
    points.push_back({static_cast<double>(random.below(values)), static_cast<double>(random.below(values))});
  return points;
}

}  // namespace

TEST_CASE("points are dominated by a point of the previous front, but by no point of their own front") {
  Random random(1);
  for (const std::uint32_t values : {3u, 10u, 1000u}) {
    const std::vector<Objectives> points = random_points(random, 200, values);
    const std::vector<Standing> all = survivors(points, points.size(), random);
    REQUIRE(all.size() == points.size());
    for (const Standing& a : all) {
      const auto dominated_by = [&](std::size_t front) {
        return std::ranges::any_of(all, [&](const Standing& b) {
          return b.front == front && dominates(points[b.individual], points[a.individual]);
        });
      };
      CHECK_FALSE(dominated_by(a.front));
      if (a.front > 0) CHECK(dominated_by(a.front - 1));
    }
  }
}

TEST_CASE("survivors come from the best fronts, and only the least crowded ones from the last of these") {
  Random random(2);
  const std::vector<Objectives> points = {{0, 4}, {1, 3}, {1.1, 2.9}, {2, 2}, {4, 0}, {5, 5}};
  const std::vector<Standing> three = survivors(points, 3, random);
  std::vector<std::size_t> chosen;
  for (const Standing& each : three) chosen.push_back(each.individual);
  std::ranges::sort(chosen);
  CHECK(chosen == std::vector<std::size_t>{0, 3, 4});
}

TEST_CASE("crowding is the distance between a point's neighbors, relative to the front's extent") {
  Random random(3);
  const std::vector<Objectives> points = {{0, 4}, {1, 1}, {1, 1}, {4, 0}};
  std::map<std::size_t, double> crowding;
  for (const Standing& each : survivors(points, 4, random)) crowding[each.individual] = each.crowding;
  CHECK(crowding[0] == std::numeric_limits<double>::infinity());
  CHECK(crowding[3] == std::numeric_limits<double>::infinity());
  // Of the two equal points, one gets the distance between its neighbors, and the other one gets 0.
  CHECK(std::max(crowding[1], crowding[2]) == doctest::Approx(1));
  CHECK(std::min(crowding[1], crowding[2]) == 0);
}

TEST_CASE("a point that dominates all others wins every tournament, and one dominated by all wins none") {
  Random random(4);
  const std::vector<Objectives> points = {{3, 3}, {1, 2}, {2, 1}, {0, 0}};
  std::map<std::size_t, int> wins;
  for (const std::size_t winner : tournaments(points, {1, 1, 1, 1}, 400, random)) ++wins[winner];
  CHECK(wins[0] == 0);
  CHECK(wins[3] == 200);
  // Points that are equally good win about equally often.
  CHECK(wins[1] > 60);
  CHECK(wins[2] > 60);
}

TEST_CASE("random numbers below a bound are uniform, and reproducible from the seed") {
  Random random(5), again(5);
  std::map<std::uint32_t, int> counts;
  for (int i = 0; i < 30'000; ++i) {
    const std::uint32_t number = random.below(3);
    CHECK(number == again.below(3));
    ++counts[number];
  }
  REQUIRE(counts.size() == 3);
  for (const auto& [number, count] : counts) CHECK(count == doctest::Approx(10'000).epsilon(0.05));
}

}  // namespace nsga2_test
