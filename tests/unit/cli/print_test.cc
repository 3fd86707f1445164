#include "terminal/print.h"

#include <doctest/doctest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "terminal/terminal.h"
#include "terminal/yaml.h"
#include "view/build_screen.h"

namespace print_test {

using namespace adaptdl;
using namespace adaptdl::cli;

namespace {

constexpr const char* kHostile = "a\x1b[2J\x1b]0;t\x07\nadaptdl: \u009b1m\u202e\xff";
constexpr const char* kShown = "a\\x1b[2J\\x1b]0;t\\x07\\x0aadaptdl: \\u009b1m\\u202e\\xff";

// Returns what `print` writes to a stream, which is redirected to a file while `print` runs.
template <typename Print>
std::string written(std::FILE* stream, const Print& print) {
  std::FILE* file = std::tmpfile();
  std::fflush(stream);
  const int before = ::dup(::fileno(stream));
  ::dup2(::fileno(file), ::fileno(stream));
  print();
  std::fflush(stream);
  ::dup2(before, ::fileno(stream));
  ::close(before);
  std::rewind(file);
  std::string text(10'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("control characters in string arguments are escaped") {
  const std::string text = kHostile;
  CHECK(written(stdout, [&] { print_out("{} {:>3}|{}|{}\n", text, 7, text.c_str(), std::string_view("ü")); }) ==
        fmt::format("{0}   7|{0}|ü\n", kShown));
  CHECK(written(stderr, [&] { print_notice("job {}", text); }) == fmt::format("adaptdl: job {}\n", kShown));
  CHECK(written(stderr, [&] { print_error(text); }) == fmt::format("adaptdl: error: {}\n", kShown));
  CHECK(written(stderr, [&] { print_prompt("delete {}? ", text); }) == fmt::format("delete {}? ", kShown));
}

TEST_CASE("printable text keeps line breaks, and keeps colors only if they are enabled") {
  const std::string red = coloured("red\nü", Colour::kRed, true);
  const std::string foreign = "\x1b[41m\x1b[2J\x1b\x1b[31";
  const std::string shown = "\\x1b[41m\\x1b[2J\\x1b\\x1b[31";
  CHECK(printable_text(red, true) == red);
  CHECK(printable_text(red, false) == "\\x1b[31mred\nü\\x1b[0m");
  CHECK(printable_text(foreign + red + foreign + red, true) == shown + red + shown + red);
  CHECK(printable_text("", true) == "");
  CHECK(printable_text("\x1b", true) == "\\x1b");
  // Colors are not used when the output is a file.
  CHECK(written(stdout, [&] { print_text(red + '\n'); }) == "\\x1b[31mred\nü\\x1b[0m\n");
}

TEST_CASE("a program's raw output is printed unchanged") {
  CHECK(written(stdout, [] { print_raw(kHostile); }) == kHostile);
}

TEST_CASE("a redrawn line escapes control characters") {
  CHECK(written(stderr, [] { redraw_line("a\x1b[2J"); }) == "\r\x1b[Ka\\x1b[2J");
  CHECK(written(stderr, [] { erase_line(); }) == "\r\x1b[K");
  CHECK(written(stdout, [] { erase_lines(3); }) == "\x1b[3A\r\x1b[J");
}

TEST_CASE("YAML of hostile text is printable and parses to the same value") {
  const nlohmann::json value{{"a\x7f\u009b\u202e\n", {"\x1b[2J\u2028ü\u2069", 1}}};
  const std::string yaml = to_yaml(value), shown = printable_text(yaml, true);
  CHECK(shown.find('\x1b') == std::string::npos);
  CHECK(shown.find("\u202e") == std::string::npos);
  CHECK(YAML::Dump(YAML::Load(shown)) == YAML::Dump(YAML::Load(yaml)));
}

TEST_CASE("control characters in a build step's text and output are escaped") {
  const image::StepInfo step{.number = 1, .count = 2, .stage = "", .text = kHostile};
  CHECK(written(stderr, [&] {
          BuildScreen screen(false);
          screen.begin_step(step);
          screen.output(step, kHostile);
          screen.notice(kHostile);
        }) == fmt::format("[1/2] {0}\n| {0}\nadaptdl: {0}\n", kShown));
  CHECK(written(stderr, [&] {
          BuildScreen screen(true);
          screen.begin_step(step);
          screen.output(step, kHostile);
          screen.show_failure();
        }) == fmt::format("[1/2] {0}\n| {0}\n", kShown));
}

}  // namespace print_test
