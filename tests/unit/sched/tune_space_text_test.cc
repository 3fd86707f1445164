#include "tune/study/space_text.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "golden.h"
#include "tune/study/command_template.h"

namespace adaptdl::sched::tune::tune_space_text_test {
namespace {

using nlohmann::json;

Space space_of(std::initializer_list<const char*> texts) {
  Space space;
  for (const char* const text : texts) add_parameter(space, text);
  return space;
}

SpaceFile read(const json& document) {
  return parse_space(document, [](const auto& pointer) { return "space.yaml:" + pointer.to_string(); });
}

std::string error_in(auto call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string wrong(const char* text) {
  return error_in([&] { space_of({text}); });
}

Distribution only(const char* text) { return space_of({text}).parameters.at(0).distribution; }

TEST_CASE("parameters excluded by fixed values may still be used in the command") {
  Space space;
  for (const char* const text : {"lr=0.1..1", "opt=adamw"}) add_parameter(space, text);
  space.parameters.push_back({"momentum", FloatRange{}, {{"opt", {"sgd"}}}});
  space.parameters.push_back({"nesterov", Choice{{true, false}}, {{"momentum", {0.5}}}});
  settle(space);
  CHECK(space.parameters.size() == 1);
  CHECK(space.never == std::set<std::string>{"momentum", "nesterov"});
  CHECK_NOTHROW(check_command({"--lr", "{lr}", "--momentum", "{momentum}", "--nesterov={nesterov}"}, space));
}

TEST_CASE("-P accepts ranges, choices and fixed values") {
  CHECK(only("lr=log:1e-5..1e-1") == Distribution(FloatRange{1e-5, 1e-1, true, {}}));
  CHECK(only("layers=2..8") == Distribution(IntRange{2, 8, false, 1}));
  CHECK(only("units=log:1..1024") == Distribution(IntRange{1, 1024, true, 1}));
  CHECK(only("layers=-2..8:2") == Distribution(IntRange{-2, 8, false, 2}));
  CHECK(only("drop=0..0.5:0.1") == Distribution(FloatRange{0, 0.5, false, 0.1}));
  CHECK(only("opt=sgd|2|0.5|true|null") == Distribution(Choice{{"sgd", 2, 0.5, true, nullptr}}));
  CHECK(space_of({"path=a b/c", "n=3"}).fixed == Values{{"path", "a b/c"}, {"n", 3}});
}

TEST_CASE("the last definition of a parameter wins") {
  const Space space = space_of({"a=1..2", "a=7", "b=1", "b=x|y", "c=1..2", "c=3..4"});
  CHECK(space.fixed == Values{{"a", 7}});
  REQUIRE(space.parameters.size() == 2);
  CHECK(space.parameters[1].distribution == Distribution(IntRange{3, 4}));
}

TEST_CASE("an invalid parameter is reported by name with the cause") {
  CHECK_GOLDEN(wrong("lr"));
  CHECK_GOLDEN(wrong("lr="));
  CHECK_GOLDEN(wrong("1r=1..2"));
  CHECK_GOLDEN(wrong("lr=log:0..1"));
  CHECK_GOLDEN(wrong("lr=log:5"));
  CHECK_GOLDEN(wrong("lr=2..1"));
  CHECK_GOLDEN(wrong("lr=a..1"));
  CHECK_GOLDEN(wrong("lr=0..inf"));
  CHECK_GOLDEN(wrong("lr=1..2:0"));
  CHECK_GOLDEN(wrong("lr=1..2:"));
  CHECK_GOLDEN(wrong("lr=log:1..2:1"));
  CHECK_GOLDEN(wrong("opt=a||b"));
  CHECK_GOLDEN(wrong("opt=a|b|a"));
  CHECK(wrong("n=0..99999999999999999").find("2^53") != std::string::npos);
}

TEST_CASE("a space file accepts the same notation as -P, and maps with conditions") {
  const SpaceFile file = read({{"parameters",
                                {{"beta", {{"low", 0.5}, {"high", 1}, {"when", {{"nesterov", true}}}}},
                                 {"lr", "log:1e-5..1e-1"},
                                 {"nesterov", {{"choices", {true, false}}, {"when", {{"opt", {"sgd"}}}}}},
                                 {"opt", {"sgd", "adamw"}},
                                 {"width", {{"low", "1e1"}, {"high", "1e3"}, {"log", true}}},
                                 {"batch", 64}}},
                               {"seed", 7}});
  Space space = file.space;
  settle(space);
  std::vector<std::string> names;
  for (const Parameter& parameter : space.parameters) names.push_back(parameter.name);
  CHECK(names == std::vector<std::string>{"lr", "opt", "nesterov", "beta", "width"});
  CHECK(space.fixed == Values{{"batch", 64}});
  CHECK(file.seed == 7);
  CHECK(space.find("width")->distribution == Distribution(FloatRange{10, 1000, true, {}}));
  Space again = read(to_json(space)).space;
  settle(again);
  CHECK(to_json(again) == to_json(space));
}

TEST_CASE("conditions on fixed parameters are resolved") {
  Space space = read({{"parameters",
                       {{"a", {{"low", 1}, {"high", 2}, {"when", {{"opt", "sgd"}}}}},
                        {"b", {{"low", 1}, {"high", 2}, {"when", {{"opt", "adamw"}}}}},
                        {"opt", "sgd"}}}})
                    .space;
  settle(space);
  REQUIRE(space.parameters.size() == 1);
  CHECK(space.parameters[0].name == "a");
  CHECK(space.parameters[0].when.empty());
}

TEST_CASE("an invalid file is reported with the location and the cause") {
  CHECK(error_in([] { read(json::array()); }) ==
        "space.yaml:: expected a mapping whose key 'parameters' maps names to values");
  CHECK(error_in([] {
          read({{"parameters", {{"lr", {{"low", 1}}}}}});
        }) == "space.yaml:/parameters/lr: invalid parameter 'lr': expected low and high, or choices");
  CHECK(error_in([] {
          read({{"parameters", {{"lr", {{"lower", 1}}}}}});
        }).find("unknown key 'lower'") != std::string::npos);
  CHECK(error_in([] {
          read({{"parameters", json::object()}, {"seed", -1}});
        }) == "space.yaml:/seed: the seed must be a non-negative integer");
  const auto settled = [](const json& parameters) {
    return error_in([&] {
      Space space = read({{"parameters", parameters}}).space;
      settle(space);
    });
  };
  CHECK_GOLDEN(settled(json::object()));
  CHECK_GOLDEN(settled({{"a", {{"low", 1}, {"high", 2}, {"when", {{"x", 1}}}}}}));
  CHECK(settled({{"a", {{"low", 1}, {"high", 2}, {"when", {{"b", 1}}}}}, {"b", {1, 2}}}) == "no error");
  CHECK_GOLDEN(settled({{"a", {{"low", 1}, {"high", 2}, {"when", {{"b", 3}}}}}, {"b", {1, 2}}}));
  CHECK_GOLDEN(
      settled({{"a", {{"choices", {1}}, {"when", {{"b", 1}}}}}, {"b", {{"choices", {1}}, {"when", {{"a", 1}}}}}}));
}

TEST_CASE("values are formatted and parsed according to their type") {
  CHECK(to_text("sgd") == "sgd");
  CHECK(to_text(1e-5) == "1e-05");
  CHECK(to_text(2.0) == "2.0");
  CHECK(parse_value("lr", FloatRange{0, 1}, "1") == json(1.0));
  CHECK(parse_value("opt", Choice{{"1", "2"}}, "1") == json("1"));
  CHECK(parse_value("n", IntRange{1, 5}, "5") == 5);
  CHECK(error_in([] {
          parse_value("n", IntRange{1, 5}, "6");
        }) == "invalid parameter 'n': value '6' is not in the search space");
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_space_text_test
