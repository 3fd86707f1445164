// Tests times and durations in the formats of Kubernetes.
#include "kube/api/timestamp.h"

#include <doctest/doctest.h>

namespace kube_timestamp_test {

using namespace adaptdl::kube;
using namespace std::chrono_literals;

namespace {

// Returns the parsed time formatted in UTC; "none" if the text is not a valid time.
std::string again(std::string_view text) {
  const auto time = parse_time(text);
  return time ? to_string(*time) : "none";
}

}  // namespace

TEST_CASE("times are parsed with and without a fraction and an offset") {
  CHECK(again("2021-03-18T12:00:01Z") == "2021-03-18T12:00:01.000000Z");
  CHECK(again("2021-03-18T12:00:01.123456Z") == "2021-03-18T12:00:01.123456Z");
  CHECK(again("2021-03-18T12:00:01.123456789Z") == "2021-03-18T12:00:01.123456Z");
  CHECK(again("2021-03-18T12:00:01.5Z") == "2021-03-18T12:00:01.500000Z");
  CHECK(again("2021-03-18T12:00:01+05:30") == "2021-03-18T06:30:01.000000Z");
  CHECK(again("2021-03-18T23:00:01.25-02:00") == "2021-03-19T01:00:01.250000Z");
  CHECK(again("2024-02-29T00:00:00Z") == "2024-02-29T00:00:00.000000Z");
  CHECK(again("1969-12-31T23:59:59.75Z") == "1969-12-31T23:59:59.750000Z");
  CHECK(parse_time("1970-01-01T00:00:10Z") == Time(10s));
}

TEST_CASE("invalid and out-of-range times are rejected") {
  for (const char* text :
       {"", "2021", "2021-03-18", "2021-03-18T12:00Z", "2021-03-18T12:00:01", "2021-02-29T00:00:00Z",
        "2021-13-01T00:00:00Z", "2021-00-01T00:00:00Z", "2021-03-18T24:00:00Z", "2021-03-18T12:60:00Z",
        "2021-03-18T12:00:01.Z", "2021-03-18T12:00:01Z ", " 2021-03-18T12:00:01Z", "2021-03-18T12:00:01+0530",
        "2021-03-18 12:00:01Z", "+021-03-18T12:00:01Z", "2021-03-18T12:00:01.9999999999", "9999-03-18T12:00:01Z"})
    CHECK_MESSAGE(again(text) == "none", text);
}

TEST_CASE("durations are parsed in Go's syntax") {
  CHECK(parse_duration("90s") == 90s);
  CHECK(parse_duration("1h30m") == 90min);
  CHECK(parse_duration("1.5h") == 90min);
  CHECK(parse_duration(".5s") == 500ms);
  CHECK(parse_duration("1.s") == 1s);
  CHECK(parse_duration("250ms") == 250ms);
  CHECK(parse_duration("3us") == 3us);
  CHECK(parse_duration("3\u00b5s") == 3us);
  CHECK(parse_duration("-1m1s") == -61s);
  CHECK(parse_duration("+5ns") == 5ns);
  CHECK(parse_duration("0") == 0s);
  CHECK(parse_duration("2562047h") == 2562047h);
  CHECK(parse_duration("1.0000000000000000000000000000001s") == 1s);
}

TEST_CASE("invalid durations and durations beyond 292 years are rejected") {
  for (const char* text : {"", "-", "s", "1", "1d", ".s", "1s ", "1h-1m", "1.2.3s", "2562048h", "9999999999999999999s",
                           "99999999999999999999999999999999999999999999s"})
    CHECK_MESSAGE(!parse_duration(text), text);
}

}  // namespace kube_timestamp_test
