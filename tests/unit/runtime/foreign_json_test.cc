#include "base/foreign_json.h"

#include <doctest/doctest.h>

#include <string>

namespace foreign_json_test {

using namespace adaptdl;

TEST_CASE("JSON nested too deeply is discarded without recursion") {
  const auto nested = [](int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  CHECK(parse_foreign_json(nested(kMaxForeignJsonDepth)).is_array());
  CHECK(parse_foreign_json(nested(kMaxForeignJsonDepth + 1)).is_discarded());
  CHECK(parse_foreign_json(nested(300'000)).is_discarded());
  std::string objects;
  for (int i = 0; i < 300'000; ++i) objects += R"({"a":)";
  CHECK(parse_foreign_json(objects).is_discarded());
  CHECK(parse_foreign_json("[[1], {\"a\": [2]}, [3]]", 3).is_array());
  CHECK(parse_foreign_json("[[1], {\"a\": [2]}, [3]]", 2).is_discarded());
}

TEST_CASE("brackets in strings do not count as nesting") {
  const std::string brackets(1000, '[');
  CHECK(parse_foreign_json("[\"" + brackets + "\"]") == nlohmann::json{brackets});
  CHECK(parse_foreign_json(R"(["\"[[[[", "\\", [1]])", 2).is_array());
  CHECK(parse_foreign_json(R"(["\\", [[1]]])", 2).is_discarded());
}

TEST_CASE("invalid JSON is discarded") {
  for (const char* text : {"", "[", "]]]]", "{\"a\": 1", "nul", "[1] [2]", "\"", "\"\\", "1e999"}) {
    CAPTURE(text);
    CHECK(parse_foreign_json(text).is_discarded());
  }
}

TEST_CASE("count_values counts values in unparsed JSON and ignores the contents of strings") {
  CHECK(count_values("") == 0);
  CHECK(count_values(R"([1, 2, 3])") == 3);
  CHECK(count_values(R"({"a,b[{": "\",[,", "c": {}})") == 3);
  CHECK(count_values('[' + std::string(1000, ',')) == 1001);
}

TEST_CASE("parse_shallow_json replaces values nested too deeply with null and keeps the rest") {
  const auto nested = [](int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  const std::string deep = nested(9000);
  const auto list = parse_shallow_json(
      R"({"items": [{"a": 1, "b": )" + deep + R"(, "c": [2]}, {"a": )" + deep + R"(}, {"a": [[3]]}]})", 5);
  CHECK(list["items"].size() == 3);
  CHECK(list["items"][0]["a"] == 1);
  CHECK(list["items"][0]["b"] == nlohmann::json::parse("[[null]]"));
  CHECK(list["items"][0]["c"] == nlohmann::json{2});
  CHECK(list["items"][2] == nlohmann::json::parse(R"({"a": [[3]]})"));
  CHECK(parse_shallow_json("[[[1]], 2]", 1) == nlohmann::json{nullptr, 2});
  CHECK(parse_shallow_json(R"({"a": [[1], "]"], "b": 1, "[": {}})", 1) ==
        nlohmann::json{{"a", nullptr}, {"b", 1}, {"[", nullptr}});
  CHECK(parse_shallow_json("[[[1], 2", 1).is_discarded());
  CHECK(parse_shallow_json(R"({"a": {"b": {"c": 1}}})", 2) == nlohmann::json::parse(R"({"a": {"b": null}})"));
  CHECK(parse_shallow_json("[[[1]]]]", 1).is_discarded());
  std::string objects, ends;
  for (int i = 0; i < 9000; ++i) objects += R"({"a":)", ends += '}';
  const auto shallow = parse_shallow_json(objects + "1" + ends);
  CHECK(is_nested_deeper(shallow.dump(), kMaxForeignJsonDepth - 1));
  CHECK_FALSE(is_nested_deeper(shallow.dump(), kMaxForeignJsonDepth));
}

}  // namespace foreign_json_test
