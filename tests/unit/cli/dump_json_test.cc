#include "terminal/dump_json.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "terminal/print.h"

namespace dump_json_test {

using namespace adaptdl::cli;
using nlohmann::json;

TEST_CASE("JSON output escapes unprintable characters, keeps others, and parses to the same value") {
  const json value{{"name\u202e", {"\x1b[2J\x7f\u009b\n", "Zürich", 1.5, nullptr}}};
  for (const int indent : {-1, 2}) {
    const std::string text = dump_json(value, indent);
    CHECK(json::parse(text) == value);
    CHECK(printable_text(text, true) == text);
    CHECK(text.find("Zürich") != std::string::npos);
    CHECK(text.find("\\u001b[2J\\u007f\\u009b\\n") != std::string::npos);
    CHECK((text.find('\n') == std::string::npos) == (indent < 0));
  }
  CHECK(dump_json(nlohmann::ordered_json{{"z", 1}, {"a", "\u2028"}}, -1) == R"({"z":1,"a":"\u2028"})");
}

TEST_CASE("an invalid UTF-8 byte is replaced by U+FFFD") { CHECK(dump_json(json("a\xff"), -1) == "\"a\ufffd\""); }

}  // namespace dump_json_test
