#include "local/devices/run_size.h"

#include <doctest/doctest.h>

namespace run_size_test {

using namespace adaptdl::sched;
using Devices = std::vector<std::string>;

namespace {

LaunchPlan plan(int min, int max, Devices devices) {
  LaunchPlan result;
  result.min_replicas = min;
  result.replicas = max;
  result.devices = std::move(devices);
  return result;
}

}  // namespace

TEST_CASE("a run uses as many devices as it may, in order") {
  CHECK(RunSize(plan(1, 2, {"a", "b", "c"})).target().devices == Devices{"a", "b"});
  CHECK(RunSize(plan(1, 4, {"a", "b", "c"})).target().devices == Devices{"a", "b", "c"});
  CHECK(RunSize(plan(2, 2, {})).target().devices == Devices{"", ""});
  LaunchPlan shared = plan(3, 3, {"a", "b"});
  shared.share_devices = true;
  CHECK(RunSize(shared).target().devices == Devices{"a", "b", "a"});
}

TEST_CASE("a run uses its allocated devices, up to its maximum") {
  RunSize size(plan(1, 2, {"a", "b", "c", "d"}));
  size.allocate({"d"});
  CHECK(size.target().devices == Devices{"d"});
  size.allocate({"b", "c", "d"});
  CHECK(size.target().devices == Devices{"b", "c"});
  CHECK_FALSE(size.target().by_user);
}

TEST_CASE("an elastic run has start_replicas replicas until it may grow or a user resizes it") {
  LaunchPlan elastic = plan(1, 4, {"a", "b", "c", "d"});
  elastic.elastic = true;
  elastic.start_replicas = 1;
  RunSize size(elastic);
  CHECK(size.max() == 4);
  CHECK(size.max_wanted() == 1);
  CHECK(size.target().devices == Devices{"a"});
  CHECK_FALSE(size.preferred().has_value());
  size.prefer(3);
  CHECK(size.max_wanted() == 1);
  CHECK(size.preferred() == 1);
  size.may_grow();
  CHECK(size.max_wanted() == 3);
  CHECK(size.preferred() == 3);
  CHECK(size.min() == 1);
  CHECK(size.target().min == 1);
  size.prefer({});
  CHECK(size.max_wanted() == 4);
  CHECK_FALSE(size.preferred().has_value());
  // A resize by the user takes effect even before may_grow().
  RunSize resized(elastic);
  CHECK_FALSE(resized.resize(2, 3).has_value());
  CHECK(resized.target().devices == Devices{"a", "b", "c"});
}

TEST_CASE("the preferred number of replicas is clamped to the bounds") {
  RunSize size(plan(2, 3, {"a", "b", "c", "d"}));
  size.prefer(1);
  CHECK(size.target().devices == Devices{"a", "b"});
  CHECK(size.preferred() == 2);
  size.prefer(8);
  CHECK(size.target().devices == Devices{"a", "b", "c"});
}

TEST_CASE("a resize sets both bounds, and its target is marked by_user until an allocation satisfies it") {
  RunSize size(plan(1, 1, {"a", "b", "c"}));
  CHECK_FALSE(size.resize(2, 3).has_value());
  CHECK(size.min() == 2);
  CHECK(size.max() == 3);
  CHECK(size.target().devices == Devices{"a", "b", "c"});
  CHECK(size.target().by_user);
  size.allocate({"a"});  // an allocation from before the request
  size.allocate({"a", "b"});
  CHECK(size.target().by_user);
  size.allocate({"a", "b", "c"});
  CHECK_FALSE(size.target().by_user);
}

TEST_CASE("a run that is not elastic is fixed until a user resizes it") {
  LaunchPlan fixed = plan(2, 2, {"a", "b", "c"}), elastic = fixed;
  elastic.elastic = true;
  CHECK_FALSE(RunSize(elastic).fixed());
  RunSize size(fixed);
  CHECK(size.fixed());
  CHECK(size.resize(4, 4).has_value());
  CHECK(size.fixed());
  CHECK_FALSE(size.resize(3, 3).has_value());
  CHECK_FALSE(size.fixed());
}

TEST_CASE("a minimum above the number of devices is rejected and changes nothing") {
  RunSize size(plan(1, 1, {"a", "b"}));
  CHECK(*size.resize(3, 4) == "3 replicas need 3 devices, but only 2 may be used: a, b");
  CHECK(size.target().devices == Devices{"a"});
  CHECK_FALSE(size.resize(1, 4).has_value());
  CHECK(size.target().devices == Devices{"a", "b"});
}

}  // namespace run_size_test
