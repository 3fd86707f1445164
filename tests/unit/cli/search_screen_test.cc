#include "view/search_screen.h"

#include <doctest/doctest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "terminal/terminal.h"

namespace search_screen_test {

using namespace adaptdl::cli;
using namespace std::chrono_literals;

namespace {

TrialRow row(int number, std::string state, std::optional<double> value) {
  return {.number = number,
          .state = std::move(state),
          .parameters = "lr=0.004 opt=sgd",
          .value = value,
          .rung = {},
          .replicas = {},
          .goodput = {},
          .left = {}};
}

SearchSnapshot snapshot() {
  SearchSnapshot snapshot{.study = "digits",
                          .metric = "accuracy",
                          .trials = 3,
                          .all = 64,
                          .counts = {{"running", 1}, {"paused", 1}, {"complete", 1}},
                          .elapsed = 67s,
                          .device_seconds = 1800,
                          .best = row(0, "complete", 0.9712),
                          .rows = {row(2, "running", 0.5), row(0, "complete", 0.9712), row(1, "paused", 0.25)}};
  snapshot.rows[0].rung = 1;
  snapshot.rows[0].replicas = 2;
  snapshot.rows[0].goodput = 5120;
  snapshot.rows[0].left = 42s;
  return snapshot;
}

}  // namespace

TEST_CASE("the table of a search shows counts, the best trial and one row per trial") {
  CHECK(search_lines(snapshot(), 120, 20, false) ==
        std::vector<std::string>{"digits: 3 of 64 trials, 1 running, 1 paused, 1 complete  1:07  0.50 device-hours",
                                 "best: trial 0, accuracy 0.9712: lr=0.004 opt=sgd",
                                 "TRIAL  STATE     PARAMETERS        ACCURACY  RUNG  REPLICAS  GOODPUT   ETA",
                                 "    2  running   lr=0.004 opt=sgd       0.5     1         2    5,120  0:42",
                                 "    0  complete  lr=0.004 opt=sgd    0.9712     -         -        -     -",
                                 "    1  paused    lr=0.004 opt=sgd      0.25     -         -        -     -"});
}

TEST_CASE("long parameters are truncated so that the other columns fit") {
  SearchSnapshot given = snapshot();
  given.rows[0].parameters = "lr=0.004 opt=sgd layers=7 momentum=0.9";
  const auto lines = search_lines(given, 77, 20, false);
  CHECK(lines[3] == "    2  running   lr=0.004 opt=sgd l…       0.5     1         2    5,120  0:42");
  CHECK(std::ranges::all_of(lines, [](const auto& line) { return display_width(line) <= 77; }));
}

TEST_CASE("no line of the search's table is wider than the terminal") {
  for (const std::size_t width : {1, 2, 10, 20, 40, 60})
    for (const std::string& line : search_lines(snapshot(), width, 20, false)) CHECK(display_width(line) <= width);
}

TEST_CASE("on a short terminal, the first rows and the number of hidden ones are shown") {
  const auto lines = search_lines(snapshot(), 120, 5, false);
  REQUIRE(lines.size() == 5);
  CHECK(lines[3].starts_with("    2  running"));
  CHECK(lines[4] == "... and 2 more");
  for (const std::size_t height : {1, 2, 3, 4}) CHECK(search_lines(snapshot(), 120, height, false).size() <= height);
  CHECK(search_lines(snapshot(), 120, 6, false).back().starts_with("    1  paused"));
}

TEST_CASE("the number of trials without a row is shown") {
  SearchSnapshot given = snapshot();
  given.trials = 10;
  CHECK(search_lines(given, 120, 20, false).back() == "... and 7 more");
}

TEST_CASE("control characters in parameters and metric names are not printed") {
  SearchSnapshot given = snapshot();
  given.metric = "a\x1b[2J";
  given.best->parameters = given.rows[0].parameters = "x=\x1b[2J\r\n";
  for (const std::string& line : search_lines(given, 200, 20, false))
    CHECK(std::ranges::none_of(line, [](unsigned char c) { return c < ' '; }));
}

TEST_CASE("colors do not change the text of the table") {
  const auto plain = search_lines(snapshot(), 40, 5, false), coloured = search_lines(snapshot(), 40, 5, true);
  REQUIRE(plain.size() == coloured.size());
  CHECK(coloured[0] == "\x1b[1m" + plain[0] + "\x1b[0m");
  CHECK(coloured[1] == "\x1b[32m" + plain[1] + "\x1b[0m");
  CHECK(coloured[3] == plain[3]);
}

namespace {

// Replaces standard error with a pseudo-terminal while a test runs.
struct ErrorTerminal {
  ErrorTerminal() {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    resize(40, 10);
    saved = ::dup(STDERR_FILENO);
    ::dup2(slave, STDERR_FILENO);
  }
  ~ErrorTerminal() {
    ::dup2(saved, STDERR_FILENO);
    for (const int fd : {saved, master, slave}) ::close(fd);
  }
  void resize(unsigned short columns, unsigned short rows) {
    winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (master < 0) REQUIRE(::openpty(&master, &slave, nullptr, nullptr, &size) == 0);
    REQUIRE(::ioctl(master, TIOCSWINSZ, &size) == 0);
  }
  // Returns the output that has not been taken yet. Blocks if there is none.
  std::string take() {
    std::string text(65536, '\0');
    const ssize_t size = ::read(master, text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }
  int master = -1, slave = -1, saved = -1;
};

}  // namespace

TEST_CASE_FIXTURE(ErrorTerminal, "a table replaces the previous one, and notices are printed above it") {
  SearchScreen screen;
  CHECK(screen.size() == SearchScreen::Size{39, 9});
  const auto start = SearchScreen::Clock::time_point() + 1h;
  screen.draw({"a", "b"}, start);
  CHECK(take() == "a\r\nb\r\n");
  screen.draw({"c"}, start + 1ms);  // too soon after the last drawing
  screen.notice("trial 1: \x1b paused");
  screen.draw({"c"}, start + 1s);
  CHECK(take() == "\x1b[2A\r\x1b[Jadaptdl: trial 1: \\x1b paused\r\nc\r\n");
  screen.draw({"c"}, start + 2s);  // nothing has changed
  screen.forget();
  screen.draw({"d"}, start + 3s);
  CHECK(take() == "d\r\n");
  screen.notice("the last one");
  screen.close();
  CHECK(take() == "\x1b[1A\r\x1b[Jadaptdl: the last one\r\n");
}

TEST_CASE_FIXTURE(ErrorTerminal, "lines that wrapped on a narrowed terminal are erased, including colored ones") {
  SearchScreen screen;
  const auto start = SearchScreen::Clock::time_point() + 1h;
  screen.draw({std::string(30, 'x'), coloured(std::string(10, 'y'), Colour::kBold, true)}, start);
  take();
  resize(10, 10);
  screen.draw({"z"}, start + 1s);
  CHECK(take() == "\x1b[4A\r\x1b[Jz\r\n");
  screen.close();
  take();
}

TEST_CASE_FIXTURE(ErrorTerminal, "a stalled terminal does not block the drawing of the table") {
  SearchScreen screen;
  auto now = SearchScreen::Clock::time_point() + 1h;
  // The lines exceed the buffer of a pseudo-terminal.
  for (int i = 0; i < 1000; ++i) screen.draw({std::string(500, 'x'), std::to_string(i)}, now += 1s);
  std::string seen;
  while (seen.find("\x1b[Jend\r\n") == std::string::npos) {
    seen += take();
    screen.draw({"end"}, now += 1s);
  }
  CHECK(seen.find("\n999\r\n") == std::string::npos);
  screen.close();
  take();
}

}  // namespace search_screen_test
