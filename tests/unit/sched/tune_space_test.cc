#include "tune/study/space.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

namespace adaptdl::sched::tune::tune_space_test {
namespace {

using nlohmann::json;

TEST_CASE("a range contains exactly the values that it can produce") {
  const Distribution tenths = FloatRange{0, 1, false, 0.1};
  for (int i = 0; i <= 10; ++i) CHECK(contains(tenths, from_internal(tenths, 0.1 * i)));
  CHECK(contains(tenths, 0.1 + 0.2));
  CHECK_FALSE(contains(tenths, 0.35));
  CHECK_FALSE(contains(tenths, 1.1));
  CHECK_FALSE(contains(tenths, "0.1"));
  const Distribution evens = IntRange{2, 9, false, 2};
  CHECK(contains(evens, 8));
  CHECK_FALSE(contains(evens, 9));
  CHECK_FALSE(contains(evens, 2.0));
  CHECK_FALSE(contains(Choice{{"sgd", 1, nullptr}}, "adam"));
  CHECK(contains(Choice{{"sgd", 1, nullptr}}, nullptr));
}

TEST_CASE("from_internal rounds to the nearest step and stays in the range") {
  CHECK(from_internal(IntRange{2, 9, false, 2}, 100) == 8);
  CHECK(from_internal(IntRange{2, 9, false, 2}, 4.9) == 4);
  CHECK(from_internal(IntRange{2, 9, false, 2}, -1e300) == 2);
  CHECK(from_internal(FloatRange{0, 1, false, 0.3}, 1).get<double>() == doctest::Approx(0.9));
  CHECK(from_internal(FloatRange{0.5, 2}, 3) == 2.0);
  CHECK(from_internal(Choice{{"a", "b"}}, 7) == "b");
}

TEST_CASE("to_internal is the inverse of from_internal") {
  const Distribution optimizers = Choice{{"sgd", false, nullptr, 3}};
  for (int i = 0; i < 4; ++i) CHECK(to_internal(optimizers, from_internal(optimizers, i)) == i);
  CHECK(to_internal(IntRange{1, 8}, 5) == 5);
}

TEST_CASE("cardinality is the number of values") {
  CHECK(cardinality(FloatRange{0, 1, false, 0.1}) == 11);
  CHECK(cardinality(FloatRange{0, 1}) == std::nullopt);
  CHECK(cardinality(FloatRange{2, 2}) == 1);
  CHECK(cardinality(IntRange{2, 9, false, 2}) == 4);
  CHECK(cardinality(Choice{{1, 2, 3}}) == 3);
}

TEST_CASE("a range may contain all 64-bit integers") {
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min(), kHigh = std::numeric_limits<std::int64_t>::max();
  const Distribution all = IntRange{kLow, kHigh, false, 1}, odd = IntRange{kLow + 1, kHigh, false, 2};
  CHECK(contains(all, kHigh));
  CHECK(from_internal(all, 1e300) == kHigh);
  CHECK(from_internal(all, -1e300) == kLow);
  CHECK(cardinality(all) == std::numeric_limits<std::uint64_t>::max());
  CHECK(contains(odd, kHigh));
  CHECK_FALSE(contains(odd, kHigh - 1));
  CHECK(cardinality(odd) == std::uint64_t{1} << 63);
}

TEST_CASE("a parameter applies if all of its conditions hold") {
  const Parameter momentum{"momentum", FloatRange{0, 1}, {{"opt", {"sgd", "rmsprop"}}, {"nesterov", {true}}}};
  CHECK(applies(momentum, {{"opt", "sgd"}, {"nesterov", true}}));
  CHECK_FALSE(applies(momentum, {{"opt", "sgd"}, {"nesterov", false}}));
  CHECK_FALSE(applies(momentum, {{"opt", "sgd"}}));
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_space_test
