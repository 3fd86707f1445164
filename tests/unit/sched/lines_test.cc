#include "local/base/lines.h"

#include <doctest/doctest.h>

namespace lines_test {

using adaptdl::sched::LastLines;
using adaptdl::sched::LineSplitter;
using namespace std::string_literals;

namespace {

// Returns the output of a splitter for these feeds, with "$" after a complete line and "~" after a piece.
std::string split(std::vector<std::string> feeds, std::size_t limit = LineSplitter::kMaxLine) {
  LineSplitter splitter(limit);
  std::string out;
  const auto sink = [&out](std::string_view text, bool ends) { out += std::string(text) + (ends ? "$" : "~"); };
  for (const std::string& feed : feeds) splitter.feed(feed, sink);
  splitter.finish(sink);
  return out;
}

}  // namespace

TEST_CASE("the lines do not depend on how the data is fragmented") {
  CHECK(split({"one\ntwo\n"}) == "one$two$");
  CHECK(split({"o", "ne", "\nt", "wo\n"}) == "one$two$");
  CHECK(split({"\n\n"}) == "$$");
  CHECK(split({}) == "");
}

TEST_CASE("a last line without a newline is not lost") { CHECK(split({"one\ntw", "o"}) == "one$two$"); }

TEST_CASE("a line may contain any byte") { CHECK(split({"a\0b\r\x1b[31m\xff\n"s}) == "a\0b\r\x1b[31m\xff$"s); }

TEST_CASE("an overlong line is split at the limit without losing data") {
  CHECK(split({"abcdefgh\nij\n"}, 3) == "abc~def~gh$ij$");
  CHECK(split({"abc\nd\n"}, 3) == "abc$d$");
  CHECK(split({"ab", "cd", "ef"}, 3) == "abc~def$");
  CHECK(split({"abcdef", "\n"}, 3) == "abc~def$");
}

TEST_CASE("LastLines keeps the last 20 lines and truncates long ones") {
  LastLines last;
  for (int i = 0; i < 25; ++i) last.add("line " + std::to_string(i));
  last.add(std::string(LastLines::kMaxLine + 1, 'x'));
  const auto lines = last.get();
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "line 6");
  CHECK(lines[18] == "line 24");
  CHECK(lines.back() == std::string(LastLines::kMaxLine, 'x') + " [...]");
}

}  // namespace lines_test
