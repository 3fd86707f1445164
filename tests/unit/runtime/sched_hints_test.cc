// Tests posting scheduling hints to a real HTTP server in its own process.
#include "adaptdl/sched_hints.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>

#include "adaptdl/error.h"
#include "error_of.h"
#include "http_support.h"
#include "protocol/hints_request.h"

namespace sched_hints_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Process;
using adaptdl::testing::Server;
using nlohmann::json;
using ::testing::error_of;

namespace {

struct Supervisor {
  explicit Supervisor(const std::string& url) { ::setenv("ADAPTDL_SUPERVISOR_URL", url.c_str(), 1); }
  ~Supervisor() {
    ::unsetenv("ADAPTDL_SUPERVISOR_URL");
    ::unsetenv("ADAPTDL_SUPERVISOR_TOKEN");
  }
};

// Returns what one post writes to standard error.
std::string log_of_post(const std::string& url) {
  Process process(STDERR_FILENO, [&] {
    const Supervisor supervisor(url);
    post_sched_hints({{"progress", 1}}, "ns/job");
    return 0;
  });
  const std::string text = process.rest();
  CHECK(process.join() == 0);
  return text;
}

}  // namespace

TEST_CASE("hints are sent to the job's URL as JSON, with the token if one is set") {
  Server server({{200, ""}, {200, ""}});
  const Supervisor supervisor(server.url() + "/");
  const json hints{{"initBatchSize", 16}, {"gradParams", nullptr}, {"perfParams", {{"gamma", 1.5}}}};
  post_sched_hints(hints, "ns/a job");
  json request = server.request();
  CHECK(json::parse(request[3].get<std::string>()) == hints);
  request.erase(3);
  CHECK(request == json{"PUT", "/hints/ns/a%20job", nullptr});
  ::setenv("ADAPTDL_SUPERVISOR_TOKEN", "s3cret", 1);
  post_sched_hints(json::object(), "ns/job");
  CHECK(server.request() == json{"PUT", "/hints/ns/job", "Bearer s3cret", "{}"});
}

TEST_CASE("an unknown hint is rejected even without a supervisor") {
  CHECK(error_of<UsageError>([] {
          post_sched_hints({{"batchSize", 1}}, "ns/job");
        }) ==
        "unknown scheduling hint 'batchSize': expected one of initBatchSize, localBszBounds, globalBatchSize, "
        "maxBatchSize, maxProfiledReplicas, gradientAccumulation, gradParams, perfParams, progress, targetProgress, "
        "liveRescale");
  CHECK(error_of<UsageError>([] {
          post_sched_hints({{"gradParams", {{"sqr", 1}}}}, "ns/job");
        }) == "unknown scheduling hint 'gradParams.sqr': expected one of norm, var");
  CHECK(error_of<UsageError>([] {
          post_sched_hints({{"perfParams", 7}}, "ns/job");
        }) == "invalid scheduling hint 'perfParams': expected an object or null, got 7");
  CHECK(error_of<UsageError>([] { post_sched_hints(json::array(), "ns/job"); }) ==
        "invalid scheduling hints: expected an object, got array");
}

TEST_CASE("the error for an invalid value names its key, and null is accepted") {
  const auto refused = [](const json& hints) { return error_of<UsageError>([&] { check_sched_hints(hints); }); };
  CHECK(refused({{"initBatchSize", 0}}) ==
        "invalid scheduling hint 'initBatchSize': expected a whole number of at least 1 or null, got 0");
  CHECK(refused({{"maxProfiledReplicas", 2.5}}) ==
        "invalid scheduling hint 'maxProfiledReplicas': expected a whole number of at least 1 or null, got 2.5");
  CHECK(refused({{"maxBatchSize", 1e300}}).find("'maxBatchSize': expected a whole number") != std::string::npos);
  CHECK(refused({{"localBszBounds", {1, 2, 3}}}) ==
        "invalid scheduling hint 'localBszBounds': expected a pair of whole numbers of at least 1 or null, got array");
  CHECK(refused({{"gradParams", {{"norm", -1}}}}) ==
        "invalid scheduling hint 'gradParams.norm': expected a number of at least 0 or null, got -1");
  CHECK(refused({{"gradParams", {{"var", std::nan("")}}}}) ==
        "invalid scheduling hint 'gradParams.var': expected a number of at least 0 or null, got a number that is not "
        "finite");
  CHECK(refused({{"perfParams", {{"gamma", 0.5}}}}) ==
        "invalid scheduling hint 'perfParams.gamma': expected a number of at least 1 or null, got 0.5");
  CHECK(refused({{"progress", "far"}}) ==
        "invalid scheduling hint 'progress': expected a number of at least 0 or null, got string");
  CHECK(refused({{"liveRescale", 1}}) == "invalid scheduling hint 'liveRescale': expected true, false or null, got 1");
  CHECK_NOTHROW(check_sched_hints({{"initBatchSize", nullptr},
                                   {"localBszBounds", {nullptr, 64}},
                                   {"progress", 0},
                                   {"gradParams", {{"norm", nullptr}, {"var", 1e-6}}},
                                   {"liveRescale", true}}));
}

TEST_CASE("without a supervisor nothing is posted") {
  CHECK_FALSE(hints_request({{"progress", 1}}, "no job"));
  CHECK_NOTHROW(post_sched_hints({{"progress", 1}}, "no job"));
}

TEST_CASE("a job name other than NAMESPACE/NAME is rejected") {
  const Supervisor supervisor("http://127.0.0.1:9");
  CHECK(error_of<UsageError>([] {
          post_sched_hints({{"progress", 1}}, "job");
        }) == "invalid job 'job': expected NAMESPACE/NAME; set ADAPTDL_JOB_ID");
}

TEST_CASE("an unreachable or failing supervisor causes a one-line warning") {
  Server server({{500, "out of\norder"}});
  CHECK(log_of_post(server.url()) == "adaptdl: warning: scheduling hints were not posted: PUT " + server.url() +
                                         "/hints/ns/job returned HTTP status 500: 'out of order'\n");
  const std::string gone = log_of_post("http://127.0.0.1:9");
  CHECK(gone.find("adaptdl: warning: scheduling hints were not posted: PUT http://127.0.0.1:9/hints/ns/job: ") == 0);
  CHECK(std::count(gone.begin(), gone.end(), '\n') == 1);
}

TEST_CASE("a post to an unresponsive supervisor times out, by default after ten seconds") {
  Server server({{200, "", 60}});
  const Supervisor supervisor(server.url());
  auto request = hints_request({{"progress", 1}}, "ns/job");
  REQUIRE(request);
  CHECK(request->timeout == 10s);
  request->timeout = 100ms;
  CHECK(send_hints(*request).value_or("").find("/hints/ns/job") != std::string::npos);
}

}  // namespace sched_hints_test
