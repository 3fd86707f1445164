#include "local/devices/device_time.h"

#include <doctest/doctest.h>

namespace device_time_test {

using namespace std::chrono_literals;
using adaptdl::sched::DeviceTime;

namespace {

const DeviceTime::Clock::time_point kStart{1000h};

TEST_CASE("device-seconds count the time for which devices are held") {
  DeviceTime time;
  CHECK(time.seconds(kStart) == 0);
  time.hold({"0", "1"}, kStart);
  CHECK(time.seconds(kStart) == 0);
  CHECK(time.seconds(kStart + 1500ms) == 3);
  time.hold({"1"}, kStart + 2s);
  CHECK(time.seconds(kStart + 2s) == 4);
  CHECK(time.seconds(kStart + 5s) == 7);
  time.hold({}, kStart + 10s);
  CHECK(time.seconds(kStart + 1h) == 12);
  time.hold({"0", "1", "2"}, kStart + 1h);
  CHECK(time.seconds(kStart + 1h + 2s) == 18);
}

TEST_CASE("holding the same devices again does not reset their time") {
  DeviceTime time;
  for (int i = 0; i < 10; ++i) time.hold({"0"}, kStart + i * 1s);
  CHECK(time.seconds(kStart + 10s) == 10);
}

TEST_CASE("a shared device counts once, and each replica without a device counts as one") {
  DeviceTime time;
  time.hold({"0", "0", "1"}, kStart);
  CHECK(time.seconds(kStart + 1s) == 2);
  time.hold({"", "", ""}, kStart + 1s);
  CHECK(time.seconds(kStart + 2s) == 5);
}

}  // namespace
}  // namespace device_time_test
