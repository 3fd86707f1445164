#include "terminal/format.h"

#include <doctest/doctest.h>

#include <limits>

namespace format_test {

using namespace adaptdl::cli;
using namespace std::chrono_literals;

TEST_CASE("sizes are formatted with three significant digits and binary units") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.00 KiB");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(10 * 1024 - 1) == "10.0 KiB");
  CHECK(format_bytes(12'900'000) == "12.3 MiB");
  CHECK(format_bytes(1024 * 1024 - 1) == "1.00 MiB");
  CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16.0 EiB");
}

TEST_CASE("elapsed time is shown as M:SS, with hours and days only if needed") {
  CHECK(format_clock(0ms) == "0:00");
  CHECK(format_clock(59'999ms) == "0:59");
  CHECK(format_clock(12min + 34s) == "12:34");
  CHECK(format_clock(1h + 2min + 3s) == "1:02:03");
  CHECK(format_clock(76h + 5min + 6s) == "3d 04:05:06");
  CHECK(format_clock(-5s) == "0:00");
}

TEST_CASE("durations are shown in their two largest units") {
  CHECK(format_duration(900ms) == "0s");
  CHECK(format_duration(45s) == "45s");
  CHECK(format_duration(125s) == "2m 5s");
  CHECK(format_duration(120s) == "2m");
  CHECK(format_duration(3h + 20min + 7s) == "3h 20m");
  CHECK(format_duration(24h) == "1d");
  CHECK(format_duration(121h) == "5d 1h");
}

TEST_CASE("device-hours have two decimals, and small values have four") {
  CHECK(format_hours(0) == "0.0000");
  CHECK(format_hours(15) == "0.0042");
  CHECK(format_hours(360) == "0.10");
  CHECK(format_hours(4444200) == "1234.50");
}

TEST_CASE("counts have thousands separators") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_count(-123) == "-123");
}

}  // namespace format_test
