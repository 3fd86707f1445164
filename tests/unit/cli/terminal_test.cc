#include "terminal/terminal.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

namespace terminal_test {

using namespace adaptdl::cli;

namespace {

// A pseudo-terminal of 33 columns.
struct Terminal {
  Terminal() {
    winsize size{.ws_row = 10, .ws_col = 33, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::openpty(&master, &slave, nullptr, nullptr, &size) == 0);
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
  }
  ~Terminal() {
    ::close(master);
    ::close(slave);
  }
  int master = -1, slave = -1;
};

}  // namespace

TEST_CASE_FIXTURE(Terminal, "color is used on a terminal unless NO_COLOR or TERM=dumb is set") {
  CHECK(use_colour(slave));
  ::setenv("NO_COLOR", "", 1);
  CHECK(use_colour(slave));  // an empty value is treated as unset
  ::setenv("NO_COLOR", "1", 1);
  CHECK_FALSE(use_colour(slave));
  CHECK(is_capable_terminal(slave));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  CHECK_FALSE(use_colour(slave));
  CHECK_FALSE(is_capable_terminal(slave));
}

TEST_CASE_FIXTURE(Terminal, "a terminal has a width, and other files have none") {
  CHECK(terminal_width(slave) == 33);
  const int file = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  CHECK_FALSE(terminal_width(file).has_value());
  CHECK_FALSE(use_colour(file));
  ::close(file);
}

TEST_CASE("text is truncated between characters, never inside one") {
  CHECK(display_width("Zürich") == 6);
  CHECK(truncated("Zürich", 6) == "Zürich");
  CHECK(truncated("Zürich", 5) == "Züri…");
  CHECK(truncated("Zürich", 1) == "…");
  CHECK(truncated("Zürich", 0) == "");
}

TEST_CASE("text is colored only if requested") {
  CHECK(coloured("x", Colour::kRed, false) == "x");
  CHECK(coloured("x", Colour::kRed, true) == "\x1b[31mx\x1b[0m");
}

TEST_CASE("only the program's own color sequences are recognized") {
  for (int i = 0; i <= static_cast<int>(Colour::kDim); ++i) {
    const std::string text = coloured("x", static_cast<Colour>(i), true);
    const std::size_t size = colour_sequence_size(text);
    CHECK(size > 0);
    CHECK(text.substr(size) == "x\x1b[0m");
    CHECK(colour_sequence_size(text.substr(size + 1)) == 4);
  }
  for (const char* text : {"", "x", "\x1b", "\x1b[", "\x1b[3", "\x1b[31", "\x1b[m", "\x1b[8m", "\x1b[41m", "\x1b[31;5m",
                           "\x1b[2J", "\x1b[01m", "x\x1b[31m", "\x1b]0;t\x07"}) {
    CAPTURE(text);
    CHECK(colour_sequence_size(text) == 0);
  }
}

}  // namespace terminal_test
