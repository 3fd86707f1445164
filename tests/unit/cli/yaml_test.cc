#include "terminal/yaml.h"

#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

namespace yaml_test {

using namespace adaptdl;
using nlohmann::json;

TEST_CASE("strings that look like other YAML types remain strings") {
  for (const std::string text :
       {"true", "No", "null", "~",  "123", "1e3", "0x1f", "",   " a", "a ", "a: b",       "- a",   "#a", "a #b",
        "\"",   "'",  "a\nb", "@x", "*x",  "&x",  "!x",   "%x", "{}", "[]", "2026-01-31", "plain", "a b"}) {
    CAPTURE(text);
    const std::string yaml = cli::to_yaml({{"key", text}, {text, 1}});
    const YAML::Node node = YAML::Load(yaml);
    CHECK(node["key"].as<std::string>() == text);
    CHECK(node[text].as<int>() == 1);
    // Strings that YAML would read as another type must have a tag or quotes.
    if (text == "true" || text == "No" || text == "null" || text == "123") CHECK(node["key"].Tag() == "!");
  }
}

TEST_CASE("nested and empty values are written as YAML") {
  CHECK(cli::to_yaml(json::array()) == "[]\n");
  CHECK(cli::to_yaml({{"a", {1, 2.5, true, nullptr}}, {"b", json::object()}}) ==
        "a:\n  - 1\n  - 2.5\n  - true\n  - ~\nb: {}\n");
}

}  // namespace yaml_test
