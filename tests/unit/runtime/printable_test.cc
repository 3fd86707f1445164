#include "base/printable.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace printable_test {

using namespace adaptdl;
using nlohmann::json;

namespace {

// Returns the UTF-8 encoding of a character below U+10000.
std::string utf8(char32_t code) {
  return json::parse(fmt::format("\"\\u{:04x}\"", static_cast<unsigned>(code))).get<std::string>();
}

}  // namespace

TEST_CASE("ordinary text in any language is unchanged") {
  for (const char* text :
       {"", "digits-1: 50% [a\\b]", "Zürich", "日本語", "Ελληνικά", "עברית العربية", "naïve café ≤ 1 µs",
        "🚀👩‍💻", "\u00a0\u00ad\u200b\u2027\u202f\u2065\u206a\ufeff\U0010ffff"}) {
    CAPTURE(text);
    CHECK(printable(text) == text);
    CHECK(printable_json(text) == text);
  }
}

TEST_CASE("ASCII control characters are escaped as bytes") {
  for (int code = 0; code < 0x80; ++code) {
    const std::string text(1, static_cast<char>(code));
    CHECK(printable(text) == (code < 0x20 || code == 0x7f ? fmt::format("\\x{:02x}", code) : text));
  }
  CHECK(printable("a\x1b[2J\x1b]0;title\x07\r\n\x7f ü") == "a\\x1b[2J\\x1b]0;title\\x07\\x0d\\x0a\\x7f ü");
}

TEST_CASE("C1 controls, bidirectional controls and line separators are escaped") {
  const auto check = [](char32_t first, char32_t last) {
    for (char32_t code = first; code <= last; ++code)
      CHECK(printable("<" + utf8(code) + ">") == fmt::format("<\\u{:04x}>", static_cast<unsigned>(code)));
  };
  check(0x80, 0x9f);
  check(0x61c, 0x61c);
  check(0x200e, 0x200f);
  check(0x2028, 0x202e);
  check(0x2066, 0x2069);
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");
}

TEST_CASE("invalid UTF-8 is escaped byte by byte, and decoding resumes after it") {
  const std::pair<std::string, std::string> cases[] = {
      {"a\xff\xfe", "a\\xff\\xfe"},
      {"\x80\xbfz", "\\x80\\xbfz"},  // continuation bytes without a lead byte
      {"\x9b"
       "2J",
       "\\x9b2J"},                                   // CSI in ISO 8859
      {"\xc0\xaf", "\\xc0\\xaf"},                    // overlong
      {"\xc1\x9b", "\\xc1\\x9b"},                    // overlong
      {"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},           // overlong ESC
      {"\xf0\x80\x80\x8a", "\\xf0\\x80\\x80\\x8a"},  // overlong line feed
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond U+10FFFF
      {"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"},
      {"\xc3", "\\xc3"},  // truncated at the end
      {"\xe2\x82", "\\xe2\\x82"},
      {"\xf0\x9f\x9a", "\\xf0\\x9f\\x9a"},
      {"\xe2\x82\x1b[m", "\\xe2\\x82\\x1b[m"},  // truncated by an escape
      {"\xc3\xc3\xa9", "\\xc3é"},               // truncated by a character
  };
  for (const auto& [text, shown] : cases) CHECK(printable(text) == shown);
}

TEST_CASE("escaping can leave newlines unchanged") {
  CHECK(printable("a\nb\r\n\t\u2028", Newlines::kKeep) == "a\nb\\x0d\n\\x09\\u2028");
  CHECK(printable("a\nb") == "a\\x0ab");
}

TEST_CASE("escaping is idempotent") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (char32_t code = 0x80; code < 0x2100; ++code) all += utf8(code);
  const std::string once = printable(all);
  CHECK(printable(once) == once);
  CHECK(printable_json(once) == once);
  const std::string line = one_line(all, all.size());
  CHECK(printable(line) == line);
  CHECK(one_line(line, line.size()) == line);
}

TEST_CASE("printable_json returns printable JSON with the same value") {
  std::string text = "ü日🚀\"\\/";
  for (char32_t code = 0; code < 0x2100; ++code) text += utf8(code);
  const json value{{text, {text, 1, nullptr}}, {"plain", true}};
  for (const int indent : {-1, 2}) {
    const std::string shown = printable_json(value.dump(indent));
    CHECK(json::parse(shown) == value);
    CHECK(printable(shown, Newlines::kKeep) == shown);
    CHECK(shown.find("ü日🚀") != std::string::npos);
    CHECK(shown.find("\\u007f\\u0080") != std::string::npos);
    CHECK(shown.find("\\u202e") != std::string::npos);
  }
}

TEST_CASE("one_line returns a single printable line of limited length") {
  CHECK(one_line("a\r\n\tb \x1b[31m c\x7f") == "a b [31m c");
  CHECK(one_line("\xff ok \xff \xc3\xa9 \xff") == "ok \xc3\xa9");
  CHECK(one_line("aaaa\xc3\xa9", 5) == "aaaa");
  CHECK(one_line("a\u009b\u202e\u2028 b\u2069") == "a b");
  CHECK(one_line(" \n") == "");
}

TEST_CASE("escaping long text takes linear time") {
  const auto begin = std::chrono::steady_clock::now();
  CHECK(printable(std::string(1 << 20, '\x1b')).size() == 4U << 20);
  CHECK(printable(std::string(1 << 20, '\xf0')).size() == 4U << 20);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

}  // namespace printable_test
