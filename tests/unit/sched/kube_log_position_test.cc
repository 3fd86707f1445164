#include "kube/jobs/log_position.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace kube_log_position_test {

using namespace adaptdl::kube;

namespace {

struct Line {
  Time time;
  std::string text;
};

std::string stamp(Time time) { return to_string(time); }

// Returns a log as a node serves it: starting at a whole second.
std::string served(const std::vector<Line>& log, const std::string& since) {
  std::string bytes;
  const auto from = parse_time(since);
  for (const Line& line : log) {
    if (!from || line.time >= *from) bytes += stamp(line.time) + ' ' + line.text + '\n';
  }
  return bytes;
}

}  // namespace

TEST_CASE("a log that is interrupted repeatedly is shown completely and without duplicates") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Line> log;
    Time now = *parse_time("2026-01-31T12:00:09.999990Z");
    const int size = static_cast<int>(random() % 60);
    for (int i = 0; i < size; ++i) {
      // Many lines have the same time, including at the end of a second.
      if (random() % 3 == 0) now += std::chrono::microseconds(random() % 8);
      if (random() % 20 == 0) now += std::chrono::seconds(1);
      // Lines of standard output may arrive late, after more recent lines of standard error.
      const std::chrono::microseconds late(random() % 5 == 0 ? random() % 900'000 : 0);
      log.push_back({now - late, random() % 10 == 0 ? "" : "same"});
    }
    std::vector<std::string> shown;
    LogPosition position;
    TimedLines lines;
    const auto sink = [&](Time time, std::string_view text) {
      if (position.take(time)) shown.push_back(stamp(time) + ' ' + std::string(text));
      return true;
    };
    for (int connection = 0; connection < 5; ++connection) {
      lines.reset();
      position.reopen();
      const std::string bytes = served(log, position.since());
      const std::size_t broken = connection == 4 ? bytes.size() : random() % (bytes.size() + 1);
      for (std::size_t at = 0; at < broken;) {
        const std::size_t piece = std::min<std::size_t>(1 + random() % 50, broken - at);
        lines.add(std::string_view(bytes).substr(at, piece), sink);
        at += piece;
      }
    }
    std::vector<std::string> expected;
    for (const Line& line : log) expected.push_back(stamp(line.time) + ' ' + line.text);
    REQUIRE(shown == expected);
  }
}

TEST_CASE("lines before the first shown line are not shown after a reconnect") {
  const Time begin = *parse_time("2026-01-31T12:00:09.5Z");
  LogPosition position;
  position.reopen();
  for (int line = 8; line < 10; ++line) CHECK(position.take(begin + std::chrono::milliseconds(line)));  // the tail
  position.reopen();
  for (int line = 0; line < 10; ++line) CHECK_FALSE(position.take(begin + std::chrono::milliseconds(line)));
  CHECK(position.take(begin + std::chrono::milliseconds(7)));  // a line that arrives late, after all others
}

TEST_CASE("lines written after the clock is set back are shown, even after a reconnect") {
  const Time begin = *parse_time("2026-01-31T12:00:09.5Z");
  LogPosition position;
  CHECK(position.take(begin));
  CHECK(position.take(begin - std::chrono::hours(1)));
  CHECK(*parse_time(position.since()) < begin - std::chrono::hours(1));
  position.reopen();
  CHECK_FALSE(position.take(begin - std::chrono::hours(1)));
  CHECK(position.take(begin - std::chrono::minutes(59)));
}

TEST_CASE("an unterminated line is shown when the log ends, and an overlong line is shown in pieces") {
  TimedLines lines;
  std::vector<std::string> texts;
  std::vector<Time> times;
  const auto sink = [&](Time time, std::string_view text) {
    times.push_back(time);
    texts.emplace_back(text);
    return true;
  };
  lines.add("2026-01-31T12:00:00.5Z begun", sink);
  CHECK(texts.empty());
  lines.finish(sink);
  CHECK(texts == std::vector<std::string>{"begun"});
  const std::string much(TimedLines::kMaxPiece + 1000, 'x');
  lines.add("2026-01-31T12:00:01Z " + much, sink);
  CHECK(texts.size() == 2);
  lines.add("end\n2026-01-31T12:00:02Z next\n", sink);
  REQUIRE(texts.size() == 4);
  CHECK(texts[1] + texts[2] == much + "end");
  CHECK(texts[3] == "next");
  CHECK(times[1] == times[2]);
  CHECK(times[3] - times[1] == std::chrono::seconds(1));
}

TEST_CASE("timestamps that kubelets insert into long lines are removed") {
  for (const std::size_t size : {16383, 16384, 16385, 50000, 1100000, 3000000}) {
    std::string text;
    for (std::size_t i = 0; text.size() < size; ++i) text += "2026-01-31T12:00:01Z " + std::to_string(i);
    text.resize(size);
    std::string bytes;
    for (std::size_t at = 0; at < size; at += 16384)
      bytes += "2026-01-31T12:00:0" + std::to_string(at / 16384 % 10) + ".5Z " + text.substr(at, 16384);
    bytes += "\n2026-01-31T12:00:20Z next\n";
    std::string shown;
    Time last{};
    TimedLines lines;
    const auto sink = [&](Time time, std::string_view piece) {
      if (piece != "next") last = time;
      shown += piece;
      return true;
    };
    for (std::size_t at = 0; at < bytes.size(); at += 1000) lines.add(std::string_view(bytes).substr(at, 1000), sink);
    CHECK((shown == text + "next"));
    CHECK(to_string(last).substr(18, 1) == std::to_string((size - 1) / 16384 % 10));
  }
}

TEST_CASE("no more lines are passed on once the reader stops") {
  TimedLines lines;
  int given = 0;
  CHECK_FALSE(lines.add("2026-01-31T12:00:00Z a\n2026-01-31T12:00:00Z b\n", [&](Time, std::string_view) {
    ++given;
    return false;
  }));
  CHECK(given == 1);
}

}  // namespace kube_log_position_test
