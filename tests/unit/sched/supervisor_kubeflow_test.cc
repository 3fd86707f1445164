// Tests progress that is posted to the supervisor in the format of Kubeflow Trainer.
#include <doctest/doctest.h>

#include "golden.h"
#include "supervisor/supervisor.h"
#include "supervisor_support.h"

namespace supervisor_kubeflow_test {

using namespace adaptdl;
using namespace adaptdl::testing;
using nlohmann::json;

namespace {

const std::string kPath = "/kubeflow/ns/job";

// A post by Hugging Face Trainer's callback in the middle of training.
const std::string kCallback =
    R"({"trainerStatus": {"lastUpdatedTime": "2026-11-21T12:00:00.123456+00:00", "progressPercentage": 29,)"
    R"( "estimatedRemainingSeconds": 795, "metrics": [{"name": "loss", "value": "0.2347"},)"
    R"( {"name": "learning_rate", "value": "5e-05"}, {"name": "epoch", "value": "0.25"},)"
    R"( {"name": "current_step", "value": "29"}, {"name": "total_steps", "value": "100"},)"
    R"( {"name": "current_epoch", "value": "0.29"}]}})";

std::string with_metrics(const json& metrics) {
  return json{{"trainerStatus", {{"progressPercentage", 1}, {"metrics", metrics}}}}.dump();
}

struct Served {
  Served() : supervisor({}, listener) { supervisor.add_job("ns/job", "s3cret"); }
  http::Response post(const std::string& body, const std::string& path = kPath) {
    return request(supervisor, "POST", path, body, "s3cret");
  }
  // Returns the one-line error. Checks that the post is rejected, and that nothing was reported.
  std::string refusal(const std::string& body) {
    const http::Response response = post(body);
    CHECK(response.status == 400);
    CHECK(response.body.find('\n') == std::string::npos);
    CHECK(listener.progress().empty());
    return response.body;
  }
  // Returns the last report.
  json reported(const std::string& body) {
    REQUIRE(post(body).status == 200);
    return std::get<json>(listener.progress().back());
  }
  json hints() const { return supervisor.hints("ns/job"); }

  RecordingListener listener;
  sched::Supervisor supervisor;
};

}  // namespace

TEST_CASE("progress from Hugging Face's callback is reported under the keys of progress.h, with the replica's ID") {
  Served served;
  CHECK(served.post(kCallback, kPath + "?replica=0-1").status == 200);
  const json expected = {{"progress", 29},         {"targetProgress", 100}, {"remaining_s", 795}, {"loss", 0.2347},
                         {"learning_rate", 5e-05}, {"epoch", 0.29},         {"step", 29},         {"steps", 100}};
  REQUIRE(served.listener.progress().size() == 1);
  CHECK(served.listener.progress()[0] == std::tuple("ns/job", "0-1", expected));
  CHECK(served.hints() == json{{"progress", 29}, {"targetProgress", 100}});
  CHECK(served.listener.hints() == std::vector<std::string>{"ns/job"});
  CHECK(served.post(kCallback).status == 200);
  CHECK(std::get<1>(served.listener.progress()[1]).empty());
  CHECK(served.listener.hints().size() == 1);  // the hints have not changed
}

TEST_CASE("posts with missing fields, as at the start and end of training, are accepted") {
  Served served;
  CHECK(served.reported(
            R"({"trainerStatus": {"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "7"}]}})") ==
        json{{"progress", 0}, {"targetProgress", 100}, {"steps", 7}});
  CHECK(served.reported(R"({"trainerStatus": {"progressPercentage": 100, "estimatedRemainingSeconds": 0}})") ==
        json{{"progress", 100}, {"targetProgress", 100}, {"remaining_s", 0}});
  CHECK(served.reported(R"({"trainerStatus": {"metrics": null, "progressPercentage": null}, "more": [1]})") ==
        json::object());
  CHECK(served.hints() == json{{"progress", 100}, {"targetProgress", 100}});
}

TEST_CASE("a post requires the job's token, an existing job and the method POST") {
  Served served;
  for (const char* token : {"", "wrong", "s3cret0"})
    CHECK(request(served.supervisor, "POST", kPath, kCallback, token).status == 403);
  CHECK(served.post(kCallback, "/kubeflow/ns/other").status == 404);
  CHECK(served.post(kCallback, "/kubeflow/ns").status == 404);
  CHECK(served.post(kCallback, kPath + "?replica=a%0Ab").status == 400);
  for (const char* method : {"GET", "PUT"})
    CHECK(request(served.supervisor, method, kPath, kCallback, "s3cret").status == 405);
  CHECK(served.listener.progress().empty());
  CHECK(served.hints() == json::object());
}

TEST_CASE("the job's own hints replace posted progress for good") {
  Served served;
  CHECK(served.post(kCallback).status == 200);
  const json own = {{"initBatchSize", 16}};
  CHECK(request(served.supervisor, "PUT", "/hints/ns/job", own.dump(), "s3cret").status == 200);
  CHECK(served.hints() == own);
  CHECK(served.post(kCallback).status == 200);
  CHECK(served.hints() == own);
  CHECK(served.listener.progress().size() == 2);
  served.supervisor.set_hints("ns/job", {{"progress", 3}});
  CHECK(served.post(kCallback).status == 200);
  CHECK(served.hints() == json{{"progress", 3}});
}

TEST_CASE("a new operator continues with the posted progress") {
  Served served;
  served.supervisor.set_hints("ns/job", {{"progress", 3}, {"targetProgress", 100}});
  CHECK(served.post(kCallback).status == 200);
  CHECK(served.hints() == json{{"progress", 29}, {"targetProgress", 100}});
}

TEST_CASE("an invalid body is rejected with a one-line error that names the field") {
  Served served;
  CHECK_GOLDEN(served.refusal(""));
  CHECK(served.refusal(R"({"trainerStatus": {"progressPercentage": NaN}})").find("invalid JSON") != std::string::npos);
  CHECK_GOLDEN(served.refusal(R"({"trainerStatus": {"progressPercentage": 1e999}})"));
  CHECK_GOLDEN(served.refusal(std::string(60000, '[')));
  for (const char* body : {"null", "[]", "3", "{}", R"({"trainerStatus": null})", R"({"trainerStatus": [1]})"})
    CHECK_GOLDEN(served.refusal(body));
  for (const auto& [value, got] : {std::pair("-1", "-1"),
                                   {"101", "101"},
                                   {"\"50\"", "string"},
                                   {"[]", "array"},
                                   {"true", "boolean"},
                                   {"-1e-9", "-1e-09"}})
    CHECK(served.refusal(fmt::format(R"({{"trainerStatus": {{"progressPercentage": {}}}}})", value)) ==
          fmt::format("invalid progressPercentage: expected a number from 0 to 100, got {}", got));
  for (const auto& [value, got] : {std::pair("-5", "-5"), {"1e13", "10000000000000.0"}, {"{}", "object"}})
    CHECK(served.refusal(fmt::format(R"({{"trainerStatus": {{"estimatedRemainingSeconds": {}}}}})", value)) ==
          fmt::format("invalid estimatedRemainingSeconds: expected a number from 0 to 1e+12, got {}", got));
  CHECK_GOLDEN(served.refusal(with_metrics({{"loss", 1}})));
  for (const json& metric : {json(1), json(nullptr), json::array(), json::object(), json{{"name", "loss"}},
                             json{{"value", "1"}}, json{{"name", 3}, {"value", "1"}},
                             json{{"name", "loss"}, {"value", true}}, json{{"name", "x"}, {"value", nullptr}}})
    CHECK_GOLDEN(served.refusal(with_metrics(json::array({metric}))));
  CHECK(served.post(std::string(65537, ' ')).status == 413);
  CHECK(served.hints() == json::object());
}

TEST_CASE("metrics with non-finite values or unusable names are dropped") {
  Served served;
  json metrics = {{{"name", "loss"}, {"value", "nan"}},
                  {{"name", "a"}, {"value", "inf"}},
                  {{"name", "b"}, {"value", "-infinity"}},
                  {{"name", "c"}, {"value", "1e999"}},
                  {{"name", "d"}, {"value", "1 "}},
                  {{"name", "e"}, {"value", ""}},
                  {{"name", "f"}, {"value", "True"}},
                  {{"name", "g"}, {"value", "0x10"}},
                  {{"name", ""}, {"value", "1"}},
                  {{"name", "x\n\x1b[2J"}, {"value", "1"}},
                  {{"name", "event"}, {"value", "1"}},
                  {{"name", "progress"}, {"value", "77"}},
                  {{"name", "targetProgress"}, {"value", 1}},
                  {{"name", "remaining_s"}, {"value", "1"}},
                  {{"name", "eval/loss"}, {"value", "-2.5"}},
                  {{"name", std::string(129, 'x')}, {"value", "1"}},
                  {{"name", "number"}, {"value", 3}}};
  CHECK(served.reported(with_metrics(metrics)) ==
        json{{"progress", 1}, {"targetProgress", 100}, {"eval/loss", -2.5}, {"number", 3}});
}

TEST_CASE("the number of metrics is limited, but training progress is always kept") {
  Served served;
  json metrics = json::array();
  for (int i = 0; i < 1000; ++i) metrics.push_back({{"name", fmt::format("m{}", i)}, {"value", "1"}});
  metrics.push_back({{"name", "current_step"}, {"value", "5"}});
  metrics.push_back({{"name", "m0"}, {"value", "2"}});
  const json report = served.reported(with_metrics(metrics));
  CHECK(report.size() == 64 + 3);
  CHECK(report.at("m0") == 2);
  CHECK(report.contains("m63"));
  CHECK(report.at("step") == 5);
  CHECK(report.at("progress") == 1);
}

}  // namespace supervisor_kubeflow_test
