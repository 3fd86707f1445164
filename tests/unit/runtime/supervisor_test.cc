// Tests the client of the supervisor against a real HTTP server in its own process.
#include "adaptdl/supervisor.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <functional>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "http_support.h"

namespace supervisor_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Answer;
using adaptdl::testing::Server;
using nlohmann::json;
using ::testing::error_of;

namespace {

const std::vector<std::string> kAddresses{"10.0.0.1", "10.0.0.2"};

}  // namespace

TEST_CASE("discover retries on status 408 and returns the addresses by rank" * doctest::test_suite("slow")) {
  Server server({{408, "later"}, {408, ""}, {200, R"(["10.0.0.1", "10.0.0.2"])"}});
  CHECK(supervisor::discover(server.url() + "/", "ns/job", 3) == kAddresses);
  for (int i = 0; i < 3; ++i) CHECK(server.request() == json{"GET", "/discover/ns/job/3?timeout=30", nullptr, ""});
}

TEST_CASE("discover sends the bearer token") {
  Server server({{200, R"(["a"])"}});
  ::setenv("ADAPTDL_SUPERVISOR_TOKEN", "s3cret", 1);
  CHECK(supervisor::discover(server.url(), "ns/job", 0, 5s) == std::vector<std::string>{"a"});
  ::unsetenv("ADAPTDL_SUPERVISOR_TOKEN");
  CHECK(server.request() == json{"GET", "/discover/ns/job/0?timeout=5", "Bearer s3cret", ""});
}

TEST_CASE("discover escapes the job name") {
  Server server({{200, R"(["a"])"}});
  supervisor::discover(server.url(), "n s/j?b", 0);
  CHECK(server.request()[1] == "/discover/n%20s/j%3Fb/0?timeout=30");
}

TEST_CASE("discover retries when the connection breaks" * doctest::test_suite("slow")) {
  Server server({{0, ""}, {0, ""}, {200, R"(["a"])"}});
  CHECK(supervisor::discover(server.url(), "ns/job", 0) == std::vector<std::string>{"a"});
}

TEST_CASE("for any other status, discover's error contains the URL and the response") {
  const std::string body = "no such\njob";
  Server server({{400, body}, {403, body}, {404, body}, {500, body}, {302, body}});
  for (const int status : {400, 403, 404, 500, 302}) {
    CHECK(error_of([&] { supervisor::discover(server.url(), "ns/job", 1); }) ==
          fmt::format("{}/discover/ns/job/1 returned HTTP status {}: 'no such job'", server.url(), status));
  }
}

TEST_CASE("discover's error for a malformed response contains the URL and the body") {
  const std::vector<std::string> bodies{"", "{", "{}", "[]", "[1]", "[null]", "[\"\"]", "\"10.0.0.1\"", "[\"a\", 1]"};
  std::vector<Answer> answers;
  for (const std::string& body : bodies) answers.push_back({200, body});
  Server server(answers);
  for (const std::string& body : bodies) {
    CHECK(error_of([&] { supervisor::discover(server.url(), "ns/job", 1); }) ==
          fmt::format("unexpected response from {}/discover/ns/job/1: not a list of addresses: '{}'", server.url(),
                      body));
  }
}

TEST_CASE("discover rejects a response that is too large") {
  Server server({{200, "x", 0, 4 << 20}});
  CHECK(error_of([&] { supervisor::discover(server.url(), "ns/job", 1); }) ==
        fmt::format("GET {}/discover/ns/job/1?timeout=30: the response is larger than 1048576 bytes", server.url()));
}

TEST_CASE("discover times out and reports why it was waiting" * doctest::test_suite("slow")) {
  Server late({{408, ""}, {408, ""}, {408, ""}, {408, ""}, {408, ""}, {408, ""}, {408, ""}, {408, ""}, {408, ""}});
  const auto start = std::chrono::steady_clock::now();
  const std::string waited = error_of([&] { supervisor::discover(late.url(), "ns/job", 1, 500ms); });
  const std::string found_none = late.url() + "/discover/ns/job/1: not all replicas were found within 0.5s: ";
  // On a busy machine, the timeout may cut off even the first attempt.
  const bool is_cut_off = waited.find(found_none + "GET " + late.url()) == 0;
  CHECK_MESSAGE((waited == found_none + "some are not running yet" || is_cut_off), waited);
  Server silent({{200, "[]", 60}});
  const std::string error = error_of([&] { supervisor::discover(silent.url(), "ns/job", 1, 500ms); });
  CHECK_MESSAGE(error.find(silent.url() + "/discover/ns/job/1: not all replicas were found within 0.5s: ") == 0, error);
  CHECK(std::chrono::steady_clock::now() - start < 45s);
}

TEST_CASE("discover reports a refused connection" * doctest::test_suite("slow")) {
  std::string gone;
  {
    Server server({});
    gone = server.url();
  }
  // The timeout leaves time for the first attempt, whose error is kept if later attempts are cut off.
  const std::string error = error_of([&] { supervisor::discover(gone, "ns/job", 1, 4s); });
  CHECK_MESSAGE(error.find(gone + "/discover/ns/job/1: not all replicas were found within 4s: ") == 0, error);
  CHECK_MESSAGE(error.find("connection refused") != std::string::npos, error);
}

TEST_CASE("invalid jobs and URLs fail immediately") {
  const auto start = std::chrono::steady_clock::now();
  CHECK_GOLDEN(error_of([] { supervisor::discover("http://127.0.0.1:1", "job", 0); }));
  for (const char* job : {"", "/", "a/", "/b", "a/b/c"})
    CHECK_THROWS_AS(supervisor::discover("http://127.0.0.1:1", job, 0), UsageError);
  CHECK_MESSAGE(error_of([] { supervisor::discover("file:///etc", "ns/job", 0); }).find("GET file:///etc") == 0,
                "file:");
  CHECK_MESSAGE(error_of([] { supervisor::discover("not a url", "ns/job", 0); }).find("invalid URL 'not a url") == 0,
                "malformed");
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

}  // namespace supervisor_test
