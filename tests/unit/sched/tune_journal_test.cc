#include "tune/journal/journal.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "tune/journal/journal_distribution.h"
#include "tune/journal/journal_time.h"
#include "tune/study/python_json.h"
#include "tune_journal_support.h"

namespace adaptdl::sched::tune::tune_journal_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using namespace testing;
using ::testing::error_of;
using ::testing::says;
using Scene = JournalScene;

const Distribution kRate = FloatRange{1e-5, 1, true, {}};
const Distribution kOptimizer = Choice{{"sgd", true, nullptr, 2}};

TEST_CASE("written data is read back, even through another Journal") {
  const Scene scene;
  Journal journal(scene.file);
  CHECK(journal.studies().empty());
  const int study = journal.create_study("digits", Direction::kMaximize, "accuracy");
  journal.set_study_attribute(study, "config", {{"a", {1, nullptr, "\u00fc"}}});
  const int waiting = journal.create_trial(study, TrialState::kWaiting, {{"fixed_params", {{"rate", 0.5}}}});
  const int running = journal.create_trial(study, TrialState::kRunning);
  journal.set_parameter(running, "rate", kRate, 0.1);
  journal.set_parameter(running, "layers", kLayers, 3);
  journal.set_parameter(running, "optimizer", kOptimizer, nullptr);
  journal.report(running, 10, 0.1 + 0.2);
  journal.report(running, 20, std::nan(""));
  journal.report(running, -1, -std::numeric_limits<double>::infinity());
  journal.set_trial_attribute(running, "gpu", 1.5);
  const auto before = std::chrono::system_clock::now();
  CHECK(journal.finish(running, TrialState::kPruned, 0.75));

  const auto check = [&](const Journal& other) {
    const Study* const found = other.find("digits");
    REQUIRE(found != nullptr);
    CHECK(other.find("digit") == nullptr);
    CHECK(found->id == study);
    CHECK(found->directions == std::vector{Direction::kMaximize});
    CHECK(found->user_attributes.at("config") == json{{"a", {1, nullptr, "\u00fc"}}});
    CHECK(found->system_attributes.at("study:metric_names") == json{"accuracy"});
    REQUIRE(found->trials.size() == 2);
    const Trial& first = found->trials[0];
    CHECK((first.id == waiting && first.number == 0 && first.state == TrialState::kWaiting && !first.started));
    CHECK(first.system_attributes.at("fixed_params") == json{{"rate", 0.5}});
    const Trial& second = *other.trial(running);
    CHECK((&second == &found->trials[1] && second.number == 1 && second.state == TrialState::kPruned));
    CHECK(second.parameters == Values{{"layers", 3}, {"optimizer", nullptr}, {"rate", 0.1}});
    CHECK(second.parameters.at("layers").is_number_integer());
    CHECK((second.distributions.at("rate") == kRate && second.distributions.at("layers") == kLayers));
    CHECK(second.distributions.at("optimizer") == kOptimizer);
    CHECK(second.intermediate.at(10) == 0.1 + 0.2);
    CHECK(std::isnan(second.intermediate.at(20)));
    CHECK(second.intermediate.at(-1) == -std::numeric_limits<double>::infinity());
    CHECK(second.user_attributes.at("gpu") == 1.5);
    CHECK(second.values == std::vector{0.75});
    CHECK((second.started && *second.started <= before && second.ended && before - *second.ended < 10us));
  };
  check(journal);
  check(Journal(scene.file, {.create = false}));
  CHECK_FALSE(fs::exists(fs::symlink_status(scene.lock)));
}

TEST_CASE("refresh reads appended records, but nothing of a batch before its commit") {
  const Scene scene;
  Journal one(scene.file), other(scene.file);
  const int study = one.create_study("a", Direction::kMinimize, "loss");
  CHECK(other.find("a") == nullptr);
  other.refresh();
  CHECK(other.find("a") != nullptr);
  const int trial = one.create_trial(study, TrialState::kRunning);
  one.begin();
  one.report(trial, 1, 1);
  other.refresh();
  CHECK(other.trial(trial)->intermediate.empty());
  one.commit();
  other.refresh();
  CHECK(other.trial(trial)->intermediate.size() == 1);
  one.begin();
  one.report(trial, 2, 1);
  CHECK(one.create_trial(study, TrialState::kRunning) == trial + 1);  // also commits
  other.refresh();
  CHECK(other.trial(trial)->intermediate.size() == 2);
}

TEST_CASE("study names are unique, even across journals that have not been refreshed") {
  const Scene scene;
  Journal one(scene.file), other(scene.file);
  one.create_study("a", Direction::kMinimize, "loss");
  CHECK_GOLDEN(error_of<UsageError>([&] { other.create_study("a", Direction::kMinimize, "loss"); }));
  CHECK(other.create_study("b", Direction::kMinimize, "loss") == 1);
  CHECK_GOLDEN(error_of([&] { one.create_trial(7, TrialState::kRunning); }));
  CHECK_GOLDEN(error_of([&] { one.report(0, 1, 1); }));
}

TEST_CASE("a waiting trial is claimed only once, and a trial ends only once") {
  const Scene scene;
  Journal one(scene.file), other(scene.file);
  const int study = one.create_study("a", Direction::kMinimize, "loss");
  CHECK(one.claim_waiting(study) == std::nullopt);
  const int first = one.create_trial(study, TrialState::kWaiting),
            second = one.create_trial(study, TrialState::kWaiting);
  other.refresh();
  CHECK(one.claim_waiting(study) == first);
  CHECK(other.claim_waiting(study) == second);
  CHECK(one.claim_waiting(study) == std::nullopt);
  CHECK((one.trial(first)->state == TrialState::kRunning && one.trial(first)->started));
  CHECK(one.finish(first, TrialState::kComplete, 1));
  CHECK_FALSE(other.finish(first, TrialState::kFailed, {}));
  CHECK(other.trial(first)->state == TrialState::kComplete);
  other.report(first, 1, 1);
  CHECK(other.trial(first)->intermediate.empty());
}

TEST_CASE("values that Optuna would not accept are rejected before they are written") {
  const Scene scene;
  Journal journal(scene.file);
  const int study = journal.create_study("a", Direction::kMinimize, "loss");
  const int first = journal.create_trial(study, TrialState::kRunning),
            second = journal.create_trial(study, TrialState::kRunning);
  journal.set_parameter(first, "rate", kRate, 0.1);
  journal.set_parameter(second, "rate", FloatRange{0.1, 10, true, {}}, 5);  // a different range
  journal.set_parameter(first, "optimizer", kOptimizer, "sgd");
  const std::string before = text_of(scene.file);
  const auto refused = [&](const std::function<void()>& action) { return !error_of<UsageError>(action).empty(); };
  CHECK(refused([&] { journal.set_parameter(second, "rate", FloatRange{0, 1}, 0.5); }));
  CHECK(refused([&] { journal.set_parameter(second, "rate", kLayers, 1); }));
  CHECK(refused([&] { journal.set_parameter(second, "optimizer", Choice{{"sgd"}}, "sgd"); }));
  CHECK(refused([&] { journal.set_parameter(second, "layers", kLayers, 2); }));
  CHECK(refused([&] { journal.set_parameter(second, "optimizer", kOptimizer, "adam"); }));
  CHECK(refused([&] { journal.finish(first, TrialState::kComplete, std::nan("")); }));
  CHECK(refused([&] { journal.finish(first, TrialState::kComplete, {}); }));
  CHECK(refused([&] { journal.finish(first, TrialState::kFailed, 1); }));
  CHECK(refused([&] { journal.finish(first, TrialState::kRunning, {}); }));
  CHECK(refused([&] { journal.create_trial(study, TrialState::kComplete); }));
  CHECK(text_of(scene.file) == before);
}

TEST_CASE("the upper bound of a written range is rounded down to a step, in decimal arithmetic") {
  const auto written = [](const Distribution& distribution) { return parse_distribution(to_text(distribution)); };
  CHECK(written(FloatRange{0, 1, false, 0.3}) == Distribution(FloatRange{0, 0.9, false, 0.3}));
  CHECK(written(FloatRange{-0.05, 0.2, false, 0.1}) == Distribution(FloatRange{-0.05, 0.15, false, 0.1}));
  CHECK(written(FloatRange{0, 0.7, false, 0.1}) == Distribution(FloatRange{0, 0.7, false, 0.1}));
  CHECK(written(FloatRange{0, 1, false, 1e-12}) == Distribution(FloatRange{0, 1, false, 1e-12}));
  constexpr double kDigits = 0.12345678901234568;  // has more digits than are kept
  CHECK(written(FloatRange{kDigits, 1, false, 2}) == Distribution(FloatRange{kDigits, kDigits, false, 2}));
  CHECK(written(IntRange{-3, 4, false, 5}) == Distribution(IntRange{-3, 2, false, 5}));
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();
  CHECK(written(IntRange{kMin, kMax, false, 2}) == Distribution(IntRange{kMin, kMax - 1, false, 2}));
}

// These are lines of Optuna 4 and 5 with various optional fields.
TEST_CASE("Optuna's journal lines are replayed by its rules") {
  const Scene scene;
  const auto line = [](int code, const std::string& rest) {
    return "{\"op_code\":" + std::to_string(code) + ",\"worker_id\":\"w\"," + rest + "}\n";
  };
  const std::string half =
      R"("distribution":"{\"name\": \"CategoricalDistribution\", \"attributes\": {\"choices\": [1, NaN]}}")";
  write_text(
      scene.file,
      line(0, R"("study_name":"gone","directions":[1])") + line(0, R"("study_name":"a","directions":[1,2])") +
          line(0, R"("study_name":"a","directions":[1])") + line(4, R"("study_id":0,"datetime_start":null)") +
          line(4, R"("study_id":1,"datetime_start":"2024-05-06T07:08:09.000001+02:00")") + line(1, R"("study_id":0)") +
          line(4, R"("study_id":0,"datetime_start":null)") + line(10, R"("trial_ids":[1],"state":"unknown")") +
          line(99, R"("study_id":"?","values":7)") +
          line(5, R"("trial_id":1,"param_name":"c","param_value_internal":0,)" + half) +
          line(5, R"("trial_id":1,"param_name":"c","param_value_internal":7.0,"distribution":)"
                  R"("{\"type\": \"int\", \"low\": 1, \"high\": 9}")") +
          line(
              5,
              R"("trial_id":1,"param_name":"u","param_value_internal":7.0,"distribution":)"
              R"("{\"name\": \"DiscreteUniformDistribution\", \"attributes\": {\"low\": 0, \"high\": 9, \"q\": 3}}")") +
          line(7, R"("trial_id":1,"step":1,"intermediate_value":NaN)") +
          line(7, R"("trial_id":12345678901234,"step":1,"intermediate_value":1)") +
          line(8, R"("trial_id":1,"user_attr":{"k":[Infinity,"\ud83d\ude00\ud800"]})") +
          line(6, R"("trial_id":1,"state":1,"values":[1,-Infinity],"datetime_complete":"2024-05-06T07:08:10+00:00")") +
          line(6, R"("trial_id":1,"state":3,"values":null,"datetime_complete":"2024-05-06T07:08:10+00:00")") +
          " { \"state\" : 4 , \"worker_id\": \"w\", \"study_id\": 1, \"datetime_start\": null, \"op_code\": 4} \r\n");
  const Journal journal(scene.file);
  REQUIRE(journal.studies().size() == 1);
  const Study& study = *journal.find("a");
  CHECK((study.id == 1 && study.directions == std::vector{Direction::kMinimize, Direction::kMaximize}));
  REQUIRE(study.trials.size() == 2);
  CHECK(journal.trial(0) == nullptr);
  const Trial& trial = study.trials[0];
  CHECK((trial.id == 1 && trial.number == 0 && trial.state == TrialState::kComplete));
  CHECK(trial.parameters == Values{{"c", 1}, {"u", 7.0}});  // 7 is not a multiple of the step, but is kept
  CHECK(trial.distributions.at("u") == Distribution(FloatRange{0, 9, false, 3}));
  CHECK(std::isnan(trial.intermediate.at(1)));
  CHECK(trial.user_attributes.at("k") == json{std::numeric_limits<double>::infinity(), "\U0001f600\ufffd"});
  CHECK(trial.values == std::vector{1, -std::numeric_limits<double>::infinity()});
  CHECK(to_journal_time(*trial.started) == "2024-05-06T05:08:09.000001+00:00");
  CHECK(to_journal_time(*trial.ended) == "2024-05-06T07:08:10.000000+00:00");
  CHECK((study.trials[1].id == 2 && study.trials[1].state == TrialState::kWaiting));
}

TEST_CASE("times without an offset are local, and invalid times are rejected") {
  std::tm parts{};
  parts.tm_year = 124;
  parts.tm_mday = 2;
  parts.tm_hour = 3;
  parts.tm_isdst = -1;
  CHECK(parse_journal_time("2024-01-02T03:00:00.250000") ==
        std::chrono::system_clock::from_time_t(std::mktime(&parts)) + 250ms);
  for (const char* const wrong :
       {"", "2024", "2024-13-01T00:00:00", "2024-01-01T24:00:00", "2024-01-01T00:00:00.1", "0001-01-01T00:00:00",
        "2024-01-01T00:00:00+0", "2024-01-01T00:00:00Z1", "2024-01-01 00:00:00.123456x"})
    CHECK(parse_journal_time(wrong) == std::nullopt);
}

TEST_CASE("Python's dialect of JSON is read and written") {
  const auto read = [](std::string_view text) {
    PythonJsonReader reader(text);
    json value = reader.value();
    reader.end();
    return value;
  };
  CHECK(std::isnan(read("NaN").get<double>()));
  CHECK(read("[-Infinity, Infinity, -0.0, 1e400, 1E-400, 18446744073709551615, 99999999999999999999]") ==
        json{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0.0,
             std::numeric_limits<double>::infinity(), 0.0, 18446744073709551615U, 1e20});
  CHECK(read(R"(["", "plain", "a\"b\\", "\u0041 plain", "gr\u00fc\u00df gr)"
             "\u00fc\u00df\"]") == json{"", "plain", "a\"b\\", "A plain", "gr\u00fc\u00df gr\u00fc\u00df"});
  const auto integer = [](std::string_view text) { return PythonJsonReader(text).integer(); };
  CHECK(integer("7") == 7);
  CHECK(integer(" 9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(integer("9223372036854775808") == std::numeric_limits<std::int64_t>::max());
  CHECK(integer("-9223372036854775809") == std::numeric_limits<std::int64_t>::min());
  CHECK(integer("-7.0") == -7);
  CHECK(integer("3e2") == 300);
  CHECK_FALSE(error_of([&] { integer("0.5"); }).empty());
  CHECK(to_python_json({{"a", {std::nan(""), 1.0, 1e-5, true, nullptr}}, {"\u00fc\xff", "\U0001f600\n"}}) ==
        "{\"a\":[NaN,1.0,1e-05,true,null],\"\\u00fc\\ufffd\":\"\\ud83d\\ude00\\n\"}");
  for (const char* const wrong : {"",        "01",     "1.",        ".5",         "+1",
                                  "1e",      "nan",    "Nan",       "-",          "-Inf",
                                  "\"",      "\"\n\"", "\"\\x\"",   "\"\\u12\"",  "\"\\ud800\\u12\"",
                                  "[1,]",    "[,1]",   "[1 2]",     "{\"a\":1,}", "{a:1}",
                                  "{\"a\"}", "[1}",    "{\"a\":1]", "tru",        "1 1",
                                  "'a'"})
    CHECK_MESSAGE(!error_of([&] { read(wrong); }).empty(), wrong);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_journal_test
