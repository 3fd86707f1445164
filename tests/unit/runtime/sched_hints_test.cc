// Tests posting scheduling hints to a real HTTP server in its own process.
#include "adaptdl/sched_hints.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
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
  CHECK_GOLDEN(error_of<UsageError>([] { post_sched_hints({{"batchSize", 1}}, "ns/job"); }));
  CHECK_GOLDEN(error_of<UsageError>([] { post_sched_hints({{"gradParams", {{"sqr", 1}}}}, "ns/job"); }));
  CHECK_GOLDEN(error_of<UsageError>([] { post_sched_hints({{"perfParams", 7}}, "ns/job"); }));
  CHECK_GOLDEN(error_of<UsageError>([] { post_sched_hints(json::array(), "ns/job"); }));
}

TEST_CASE("the error for an invalid value names its key, and null is accepted") {
  const auto refused = [](const json& hints) { return error_of<UsageError>([&] { check_sched_hints(hints); }); };
  CHECK_GOLDEN(refused({{"initBatchSize", 0}}));
  CHECK_GOLDEN(refused({{"maxProfiledReplicas", 2.5}}));
  CHECK_GOLDEN(refused({{"maxBatchSize", 1e300}}));
  CHECK_GOLDEN(refused({{"localBszBounds", {1, 2, 3}}}));
  CHECK_GOLDEN(refused({{"gradParams", {{"norm", -1}}}}));
  CHECK_GOLDEN(refused({{"gradParams", {{"var", std::nan("")}}}}));
  CHECK_GOLDEN(refused({{"perfParams", {{"gamma", 0.5}}}}));
  CHECK_GOLDEN(refused({{"progress", "far"}}));
  CHECK_GOLDEN(refused({{"liveRescale", 1}}));
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
  CHECK_GOLDEN(error_of<UsageError>([] { post_sched_hints({{"progress", 1}}, "job"); }));
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
