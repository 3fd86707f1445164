#include "cluster_tuner/cluster_calls.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "http/http.h"
#include "kube/api/error.h"

namespace cluster_calls_test {

using namespace adaptdl;
using namespace adaptdl::sched::tune;

namespace {

struct Scene {
  kube::Client client{kube::Access{}};  // never connected
  std::vector<std::string> notices;
  ClusterCalls calls{client, [this](const std::string& text) { notices.push_back(text); }};
};

kube::ApiError api_error(int code, const std::string& name = "") {
  return {"answer " + std::to_string(code), code, "", name.empty() ? nlohmann::json() : nlohmann::json{{"name", name}}};
}

}  // namespace

TEST_CASE("a call is retried until it succeeds, and the outage is reported once" * doctest::test_suite("slow")) {
  Scene scene;
  int tries = 0;
  const int result = scene.calls.persist({}, [&] {
    ++tries;
    if (tries == 1) throw http::ConnectionError("connection refused");
    if (tries == 2) throw api_error(503);
    if (tries == 3) throw api_error(403);  // a server that is starting may answer with 403 or 404
    if (tries == 4) throw api_error(404);
    if (tries == 5) throw api_error(409);  // a conflict with another change
    return 7;
  });
  CHECK(result == 7);
  CHECK(tries == 6);
  CHECK(scene.notices ==
        std::vector<std::string>{"request to the cluster failed: connection refused; retrying while the jobs continue",
                                 "the cluster responds again"});
}

TEST_CASE("a permanent error is thrown without a retry") {
  for (const int code : {400, 404, 422}) {
    Scene scene;
    int tries = 0;
    const auto fail = [&] {
      ++tries;
      throw api_error(code, "job");
    };
    CHECK_THROWS_AS(scene.calls.persist({}, fail), kube::ApiError);
    CHECK(tries == 1);
    CHECK(scene.notices.empty());
  }
  Scene scene;
  CHECK_THROWS_AS(scene.calls.persist({}, [] { throw std::runtime_error("another one"); }), std::runtime_error);
}

TEST_CASE("a stop request ends the retries") {
  Scene scene;
  std::stop_source stop;
  int tries = 0;
  const auto fail = [&] {
    if (++tries == 2) stop.request_stop();
    throw http::ConnectionError("connection refused");
  };
  CHECK_THROWS_AS(scene.calls.persist(stop.get_token(), fail), http::Stopped);
  CHECK(tries == 2);
}

}  // namespace cluster_calls_test
