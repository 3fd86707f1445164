// Tests reading SPDY frames, including hostile ones, in pieces of any size.
#include "kube/stream/spdy_frames.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kube_spdy_support.h"

namespace kube_spdy_frames_test {

using adaptdl::kube::spdy::FrameReader;
using namespace testing::spdy;
using Kind = FrameReader::Event::Kind;

namespace {

// Returns the events that a reader reports for bytes in pieces of this size: "data 3:text", "end 3", "reset 1", "ping
// 2", "malformed", "in a frame".
std::vector<std::string> events_of(const std::string& bytes, std::size_t piece) {
  const auto reader = std::make_unique<FrameReader>();
  std::vector<std::string> all;
  for (std::size_t at = 0;;) {
    const FrameReader::Event event = reader->next();
    if (event.kind == Kind::kMore) {
      if (at == bytes.size()) break;
      const auto room = reader->room();
      const std::size_t size = std::min({piece, bytes.size() - at, room.size()});
      REQUIRE(size > 0);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), size, room.begin());
      reader->received(size);
      at += size;
      continue;
    }
    const std::string id = std::to_string(event.id);
    const std::string data = "data " + id + ":";
    if (!event.data.empty() && !all.empty() && all.back().starts_with(data))
      all.back() += event.data;
    else if (!event.data.empty())
      all.push_back(data + std::string(event.data));
    if (event.ends) all.push_back("end " + id);
    if (event.kind == Kind::kReset) all.push_back("reset " + id);
    if (event.kind == Kind::kPing) all.push_back("ping " + id);
    if (event.kind == Kind::kMalformed) {
      all.push_back("malformed");
      return all;
    }
  }
  if (reader->in_frame()) all.push_back("in a frame");
  return all;
}

using Events = std::vector<std::string>;

}  // namespace

TEST_CASE("the parsed frames do not depend on how the data is fragmented" * doctest::test_suite("slow")) {
  const std::string large(300'000, 'x');
  const std::string bytes = data(3, "one") + ping(2) + data(5, large) + data(3, "") + data(3, "two", true) + reset(1) +
                            data(5, "", true) + data(7, "last", true);
  const Events expected{"data 3:one", "ping 2", "data 5:" + large, "data 3:two", "end 3",
                        "reset 1",    "end 5",  "data 7:last",     "end 7"};
  for (const std::size_t piece : {1u, 2u, 3u, 7u, 8u, 9u, 1000u, 65536u, 1u << 20}) {
    CAPTURE(piece);
    CHECK(events_of(bytes, piece) == expected);
  }
}

TEST_CASE("frames that are irrelevant to a command are ignored") {
  for (const unsigned type : {1u, 2u, 4u, 5u, 7u, 8u, 9u, 10u, 0xFFFFu}) {
    CAPTURE(type);
    CHECK(events_of(control(type, std::string(20, '\xff')) + control(type, "") + data(3, "after"), 1) ==
          Events{"data 3:after"});
  }
}

TEST_CASE("control frames up to 64 KiB are accepted, and larger ones are malformed") {
  CHECK(events_of(control(8, std::string(65536, 'h')) + ping(4), 1 << 20) == Events{"ping 4"});
  CHECK(events_of(control(8, std::string(65537, 'h')), 1 << 20) == Events{"malformed"});
  // The header of the frame suffices to reject it.
  CHECK(events_of(control(8, std::string(0xFFFFFF, 'h')).substr(0, 8), 1) == Events{"malformed"});
}

TEST_CASE("frames of another version or with an invalid length are malformed") {
  std::string other = ping(2);
  other[1] = 2;
  CHECK(events_of(other, 1) == Events{"malformed"});
  for (const std::size_t size : {0u, 3u, 5u})
    CHECK(events_of(control(6, std::string(size, 'p')), 1) == Events{"malformed"});
  for (const std::size_t size : {0u, 3u, 4u, 7u, 9u})
    CHECK(events_of(control(3, std::string(size, 'r')), 1) == Events{"malformed"});
  CHECK(events_of("HTTP/1.1 400 Bad Request\r\n\r\n", 1).back() == "in a frame");
}

TEST_CASE("the end of the data within a frame is distinguished from an end between frames") {
  const std::string bytes = data(3, "four") + ping(2) + data(5, "five", true);
  const std::vector<std::size_t> ends{0, 12, 24, bytes.size()};
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    CAPTURE(size);
    const Events all = events_of(bytes.substr(0, size), 1);
    const bool within = !all.empty() && all.back() == "in a frame";
    CHECK(within == (std::ranges::find(ends, size) == ends.end()));
  }
}

}  // namespace kube_spdy_frames_test
