// Tests what is passed to a trial, and how its results are parsed.
#include <doctest/doctest.h>

#include <cmath>

#include "adaptdl/error.h"
#include "golden.h"
#include "tune/study/command_template.h"
#include "tune/study/result.h"

namespace adaptdl::sched::tune::tune_trial_io_test {
namespace {

using Words = std::vector<std::string>;

std::string refused(const Words& command, const Space& space) {
  try {
    check_command(command, space);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("parameter values are substituted into the arguments") {
  CHECK(make_command({"./p", "--lr={lr}", "--opt", "{opt}", "{a}-{b}", "{{lr}}"},
                     {{"lr", 0.5}, {"opt", "sgd"}, {"a", 1}, {"b", true}}) ==
        Words{"./p", "--lr=0.5", "--opt", "sgd", "1-true", "{lr}"});
}

TEST_CASE("an argument whose parameter a trial does not have is omitted with its option") {
  CHECK(make_command({"./p", "--fast", "--momentum={m}", "--beta", "{m}", "-v", "x{m}"}, {}) ==
        Words{"./p", "--fast", "-v"});
}

TEST_CASE("unknown parameters and unmatched braces are rejected") {
  const Space space{{{"lr", FloatRange{}, {}}}, {{"n", 1}}};
  CHECK(refused({"{lr}", "{n}", "{{x}}"}, space).empty());
  CHECK_GOLDEN(refused({"--a={rate}"}, space));
  CHECK_GOLDEN(refused({"{lr"}, space));
  CHECK_GOLDEN(refused({"lr}"}, space));
}

TEST_CASE("each parameter is passed in its own environment variable") {
  CHECK(parameter_variables({{"weight-decay", 0.1}, {"opt", "sgd"}}) ==
        std::vector<std::pair<std::string, std::string>>{{"ADAPTDL_PARAM_OPT", "sgd"},
                                                         {"ADAPTDL_PARAM_WEIGHT_DECAY", "0.1"}});
  const Space space{{{"a-b", FloatRange{}, {}}, {"a_b", FloatRange{}, {}}}, {}};
  CHECK_GOLDEN(refused({}, space));
}

TEST_CASE("a result is a JSON object that contains the metric") {
  const auto result = parse_result(R"({"accuracy": 0.5, "step": 99.7, "epoch": 2})", "accuracy");
  REQUIRE(result);
  CHECK(result->value == 0.5);
  CHECK(result->step == 100);
  CHECK(result->epoch == 2);
  CHECK(parse_result(R"( {"loss": 1, "progress": 7})", "loss")->step == 7);
  CHECK_FALSE(parse_result(R"({"loss": 1})", "loss")->step);
  CHECK_FALSE(parse_result(R"({"loss": 1})", "accuracy"));
  CHECK_FALSE(parse_result(R"({"loss": "1"})", "loss"));
  for (const char* const line : {"", "loss 1", "[1]", "{", "{\"loss\": }", "{\"loss\": 1"})
    CHECK_FALSE(parse_result(line, "loss"));
}

TEST_CASE("a result's step defaults to its epoch, and fractional progress is ignored") {
  CHECK(parse_result(R"({"loss": 1, "epoch": 3})", "loss")->step == 3);
  CHECK(parse_result(R"({"loss": 1, "epoch": 3.7})", "loss")->step == 3);
  CHECK(parse_result(R"({"loss": 1, "progress": 0.5, "epoch": 2})", "loss")->step == 2);
  CHECK(parse_result(R"({"loss": 1, "progress": 1.0, "epoch": 4})", "loss")->step == 4);
  CHECK(parse_result(R"({"loss": 1, "step": 1, "epoch": 4})", "loss")->step == 1);
  CHECK_FALSE(parse_result(R"({"loss": 1, "progress": 0.5})", "loss")->step);
}

TEST_CASE("null and Python's non-finite values are parsed as NaN") {
  for (const char* const line : {R"({"loss": null})", R"({"loss": NaN})", R"({"x": "NaN\"", "loss": -Infinity})",
                                 R"({"loss": Infinity})"}) {
    const auto result = parse_result(line, "loss");
    REQUIRE(result);
    CHECK(std::isnan(result->value));
  }
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_trial_io_test
