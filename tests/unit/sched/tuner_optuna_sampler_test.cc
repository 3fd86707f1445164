#include "tuner/optuna_sampler.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace adaptdl::sched::tune::tuner_optuna_sampler_test {
namespace {

using nlohmann::json;

const Space kSpace{{{"optimizer", Choice{{"sgd", "adam"}}},
                    {"momentum", FloatRange{0, 1}, {{"optimizer", {"sgd"}}}},
                    {"beta", FloatRange{0, 1}, {{"optimizer", {"adam"}}}},
                    {"layers", IntRange{1, 9, false, 2}}},
                   {{"batch", 64}}};

// Replaces the helper with a program that appends its input to the file passed as the storage.
struct HelperScene {
  explicit HelperScene(const std::string& cases, const std::string& hello = R"({"optuna": "5.0.0"})") {
    std::ofstream(plan.script) << "echo '" << hello << "'\n"
                               << "while read -r line; do\n  printf '%s\\n' \"$line\" >> \"$3\"\n  case \"$line\" in\n"
                               << cases << "    *) echo '{\"trial\": 7}' ;;\n  esac\ndone\n";
  }

  std::vector<json> requests() const {
    std::vector<json> requests;
    std::ifstream file(plan.journal);
    for (std::string line; std::getline(file, line);) requests.push_back(json::parse(line));
    return requests;
  }

  ::testing::TemporaryDirectory directory;
  OptunaPlan plan{.name = "TPESampler",
                  .seed = 5,
                  .python = "/bin/sh",
                  .script = directory.path() / "helper.sh",
                  .study = "s",
                  .journal = directory.path() / "requests"};
  Study study{0, "s", {Direction::kMinimize}, {}, {}, std::vector<Trial>(7)};
};

constexpr const char* kAnswers =
    "    *'\"suggest\":\"optimizer\"'*) echo '{\"value\": \"sgd\"}' ;;\n"
    "    *'\"suggest\":\"momentum\"'*) echo '{\"value\": 0.25}' ;;\n"
    "    *'\"suggest\":\"layers\"'*) echo '{\"value\": 3}' ;;\n"
    "    *'\"finish\"'*) echo '{\"attributes\": {\"trial\": {\"a\": [1]}, \"study\": {\"b\": null}}}' ;;\n";

TEST_CASE("parameters are requested one by one, and only if they apply") {
  HelperScene scene(kAnswers);
  OptunaSampler sampler(scene.plan);
  const auto values = sampler.sample(kSpace, scene.study, 7, {});
  CHECK(values == Values{{"optimizer", "sgd"}, {"momentum", 0.25}, {"layers", 3}});
  CHECK(sampler.attributes().trial == std::map<std::string, json>{{"a", {1}}});
  CHECK(sampler.attributes().study == std::map<std::string, json>{{"b", nullptr}});
  const auto requests = scene.requests();
  REQUIRE(requests.size() == 5);
  CHECK(requests[0] == json{{"trial", 7}, {"trials", 7}, {"given", json::object()}});
  CHECK(requests[1]["suggest"] == "optimizer");
  CHECK(requests[2]["suggest"] == "momentum");
  CHECK(json::parse(requests[3]["distribution"].get<std::string>())["name"] == "IntDistribution");
  CHECK(requests[4] == json{{"finish", 7}});
}

TEST_CASE("given values are not requested") {
  HelperScene scene(kAnswers);
  OptunaSampler sampler(scene.plan);
  const Values given{{"optimizer", "adam"}, {"beta", 0.5}, {"unknown", 1}};
  CHECK(sampler.sample(kSpace, scene.study, 3, given) ==
        Values{{"optimizer", "adam"}, {"beta", 0.5}, {"layers", 3}, {"unknown", 1}});
  const auto requests = scene.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0]["given"].size() == 2);
  CHECK(requests[0]["given"]["beta"]["value"] == 0.5);
  CHECK(json::parse(requests[0]["given"]["beta"]["distribution"].get<std::string>())["name"] == "FloatDistribution");
}

TEST_CASE("an unusable sampler is a usage error") {
  const HelperScene scene("", R"({"error": "unknown sampler; Optuna 5.0.0 has TPESampler"})");
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { OptunaSampler sampler(scene.plan); }));
  OptunaPlan plan = scene.plan;
  plan.python = "no-such-python";
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { OptunaSampler sampler(plan); }));
}

TEST_CASE("a stop signal interrupts the start of a sampler") {
  HelperScene scene("");
  std::ofstream(scene.plan.script) << "while read -r line; do :; done\n";
  sigset_t stops, before;
  ::sigemptyset(&stops);
  ::sigaddset(&stops, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stops, &before);
  ::raise(SIGTERM);
  CHECK_THROWS_AS(OptunaSampler sampler(scene.plan), HelperInterrupted);
  int number = 0;
  ::sigwait(&stops, &number);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("a failure or exit of the sampler and an invalid value are errors") {
  const auto message = [](const std::string& cases) -> std::string {
    HelperScene scene(cases);
    OptunaSampler sampler(scene.plan);
    try {
      sampler.sample(kSpace, scene.study, 7, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK_GOLDEN(message("    *suggest*) echo '{\"error\": \"ValueError: no\"}' ;;\n"));
  CHECK_GOLDEN(message("    *suggest*) echo 'MemoryError' >&2; exit 1 ;;\n"));
  CHECK_GOLDEN(message("    *suggest*) echo '{\"value\": \"rmsprop\"}' ;;\n"));
  CHECK_GOLDEN(message("    *suggest*) echo '{}' ;;\n"));
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_optuna_sampler_test
