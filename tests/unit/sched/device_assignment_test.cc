#include "local/devices/device_assignment.h"

#include <doctest/doctest.h>

namespace device_assignment_test {

using namespace adaptdl::sched;
using Devices = std::vector<std::string>;

namespace {

const Devices kFour{"0", "1", "2", "3"};

}  // namespace

TEST_CASE("each run gets the number of devices that it needs, in order, and no device is assigned twice") {
  CHECK(assign({{2, kFour, {}}, {2, kFour, {}}}) == std::vector<Devices>{{"0", "1"}, {"2", "3"}});
  CHECK(assign({{0, kFour, {}}, {1, {"3"}, {}}}) == std::vector<Devices>{{}, {"3"}});
  CHECK(assign({}) == std::vector<Devices>{});
}

TEST_CASE("a run keeps its devices, and if it needs fewer, it releases those that it lists last") {
  CHECK(assign({{2, kFour, {"3", "1", "0"}}, {1, kFour, {}}}) == std::vector<Devices>{{"3", "1"}, {"0"}});
  CHECK(assign({{1, kFour, {}}, {2, kFour, {"0", "1"}}}) == std::vector<Devices>{{"2"}, {"0", "1"}});
  CHECK(assign({{3, kFour, {"2"}}}) == std::vector<Devices>{{"2", "0", "1"}});
}

TEST_CASE("a device in use is assigned only if no other is available") {
  CHECK(assign({{2, kFour, {}}}, {"0", "2"}) == std::vector<Devices>{{"1", "3"}});
  CHECK(assign({{3, kFour, {}}}, {"0", "2"}) == std::vector<Devices>{{"0", "1", "3"}});
}

TEST_CASE("a run moves to other devices to make room for a run with fewer choices") {
  CHECK(assign({{2, kFour, {"2", "3"}}, {1, {"3"}, {}}}) == std::vector<Devices>{{"2", "0"}, {"3"}});
  // Devices move across several runs: the last run can use only "1", whose owner can use "2", whose owner can use "0".
  CHECK(assign({{1, {"2", "0"}, {"2"}}, {1, {"1", "2"}, {"1"}}, {1, {"1"}, {}}}) ==
        std::vector<Devices>{{"0"}, {"2"}, {"1"}});
}

TEST_CASE("no assignment is returned if there are too few devices") {
  CHECK_FALSE(assign({{3, kFour, {}}, {2, kFour, {}}}));
  CHECK_FALSE(assign({{1, {"3"}, {}}, {1, {"3"}, {}}}));
  CHECK_FALSE(assign({{1, {}, {"3"}}}));
}

}  // namespace device_assignment_test
