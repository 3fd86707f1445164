// Tests fits and posts in the background: they delay neither a step nor the exit, whatever the supervisor does.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "adaptdl/metrics.h"
#include "http_support.h"
#include "metrics/background.h"

namespace metrics_background_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Process;
using adaptdl::testing::Server;
using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

void use(const std::string& url) {
  ::setenv("ADAPTDL_SUPERVISOR_URL", url.c_str(), 1);
  ::setenv("ADAPTDL_JOB_ID", "ns/job", 1);
}

void measure_something() {
  for (int i = 0; i < 20; ++i) metrics::record_step(1, 1, 16, 0.1, 0.0);
}

// Blocks a child process until the test opens the gate.
class Gate {
 public:
  Gate() { REQUIRE(::pipe2(ends_, O_CLOEXEC) == 0); }
  ~Gate() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void open() const { CHECK(::write(ends_[1], "", 1) == 1); }
  void wait() const {
    char passed;
    if (::read(ends_[0], &passed, 1) != 1) std::abort();
  }

 private:
  int ends_[2];
};

// Runs `body` in a process that exits as if main had returned. The test can read the process's standard error.
template <typename Body>
Process run(const Body& body) {
  return Process(STDERR_FILENO, [&]() -> int {
    body();
    std::exit(0);
  });
}

json hints_of(const json& request) { return json::parse(request[3].get<std::string>()); }

}  // namespace

TEST_CASE("reported hints reach the supervisor") {
  Server server({{200, ""}});
  const Gate gate;
  Process process = run([&] {
    use(server.url());
    measure_something();
    metrics::set_progress("model", 7);
    metrics::begin_fit();
    metrics::finish_fit();
    metrics::report_hints();
    gate.wait();
  });
  const json request = server.request();
  gate.open();
  CHECK(process.rest() == "");
  CHECK(process.join() == 0);
  CHECK(request[0] == "PUT");
  CHECK(request[1] == "/hints/ns/job");
  CHECK(hints_of(request).at("progress") == 7);
  CHECK(hints_of(request).at("maxProfiledReplicas") == 1);
  CHECK(hints_of(request).at("perfParams").at("gamma") >= 1);
}

TEST_CASE("the last hints reach the supervisor even if the process exits") {
  Server server({{200, ""}, {200, ""}});
  const Gate gate;
  Process process = run([&] {
    metrics::last_post = 60s;  // a second is not enough on a busy machine
    use(server.url());
    metrics::set_progress("model", 1);
    metrics::report_hints();
    gate.wait();
    metrics::set_progress("model", 2);
    metrics::report_hints();
  });
  CHECK(hints_of(server.request()).at("progress") == 1);
  gate.open();
  CHECK(process.join() == 0);
  CHECK(hints_of(server.request()).at("progress") == 2);
}

TEST_CASE("only rank 0 reports hints, and only if there is a supervisor") {
  Server server({{200, ""}, {200, ""}});
  const Gate gate;
  Process process = run([&] {
    metrics::set_progress("model", 1);
    metrics::report_hints();
    use(server.url());
    ::setenv("ADAPTDL_NUM_REPLICAS", "2", 1);
    ::setenv("ADAPTDL_REPLICA_RANK", "1", 1);
    metrics::report_hints();
    std::this_thread::sleep_for(300ms);  // time for the post that must not happen
    ::setenv("ADAPTDL_REPLICA_RANK", "0", 1);
    metrics::set_progress("model", 2);
    metrics::report_hints();
    gate.wait();
  });
  CHECK(hints_of(server.request()).at("progress") == 2);
  gate.open();
  CHECK(process.join() == 0);
}

TEST_CASE("a hanging supervisor delays neither steps, nor fits, nor the exit" * doctest::test_suite("slow")) {
  Server server({{200, "", 60}});
  const Gate gate;
  Process process(STDERR_FILENO, [&]() -> int {
    use(server.url());
    measure_something();
    metrics::report_hints();
    gate.wait();
    const auto began = Clock::now();
    for (int i = 0; i < 20; ++i) {
      metrics::begin_fit();
      metrics::finish_fit();
      metrics::report_hints();
    }
    if (metrics::hints().at("perfParams").is_null()) std::exit(3);
    std::exit(Clock::now() - began < 30s ? 0 : 4);
  });
  server.request();
  gate.open();
  const auto began = Clock::now();
  CHECK(process.join() == 0);
  CHECK(Clock::now() - began < 45s);
}

TEST_CASE("after a post in progress, only the newest pending hints are sent") {
  Server server({{200, "", adaptdl::testing::kHeld}, {200, ""}});
  const Gate gate;
  Process process = run([&] {
    use(server.url());
    for (int i = 1; i <= 5; ++i) {
      metrics::set_progress("model", i);
      metrics::report_hints();
      if (i == 1) gate.wait();
    }
    std::fputs("reported\n", stderr);
    gate.wait();
  });
  CHECK(hints_of(server.request()).at("progress") == 1);
  gate.open();
  REQUIRE(process.await("reported\n"));
  server.release();
  CHECK(hints_of(server.request()).at("progress") == 5);
  gate.open();
  CHECK(process.join() == 0);
}

TEST_CASE("an outage of the supervisor is reported once, and so is its end") {
  Server server({{503, ""}, {503, ""}, {503, ""}, {200, ""}, {200, ""}, {503, ""}});
  const Gate gate;
  Process process = run([&] {
    use(server.url());
    for (int i = 0; i < 6; ++i) {
      metrics::report_hints();
      gate.wait();
    }
    gate.wait();
  });
  for (int i = 0; i < 6; ++i) {
    server.request();
    gate.open();
  }
  const std::string warning = "adaptdl: warning: scheduling hints are not being posted: PUT " +
                              server.url() + "/hints/ns/job returned HTTP status 503: ''; training continues\n";
  CHECK(process.await(warning + "adaptdl: scheduling hints are being posted again\n" + warning));
  gate.open();
  CHECK(process.rest() == warning + "adaptdl: scheduling hints are being posted again\n" + warning);
  CHECK(process.join() == 0);
}

TEST_CASE("an invalid job name causes one warning, not an error") {
  Process process = run([] {
    use("http://127.0.0.1:9");
    ::setenv("ADAPTDL_JOB_ID", "job", 1);
    metrics::report_hints();
    metrics::report_hints();
  });
  CHECK(process.rest() ==
        "adaptdl: warning: scheduling hints are not being posted: invalid job 'job': expected NAMESPACE/NAME; set "
        "ADAPTDL_JOB_ID\n");
  CHECK(process.join() == 0);
}

TEST_CASE("a fit gives the same result in the background and in the foreground") {
  measure_something();
  for (int i = 0; i < 20; ++i) metrics::record_step(2, 4, 32, 0.3, 0.1);
  metrics::begin_fit();
  std::this_thread::sleep_for(100ms);  // the thread has finished the fit
  metrics::finish_fit();
  const json beside = metrics::hints().at("perfParams");
  REQUIRE_FALSE(beside.is_null());
  metrics::begin_fit();
  metrics::finish_fit();  // most likely before the thread has started
  CHECK(metrics::hints().at("perfParams") == beside);
  metrics::reset();
  CHECK(metrics::hints().at("perfParams").is_null());
}

TEST_CASE("a reset discards a fit in progress") {
  for (int i = 0; i < 100; ++i) {
    measure_something();
    metrics::begin_fit();
    if (i % 2) std::this_thread::sleep_for(std::chrono::microseconds(10 * i));
    metrics::reset();
    CHECK_FALSE(metrics::fit_pending());
    CHECK(metrics::hints().at("perfParams").is_null());
  }
}

}  // namespace metrics_background_test
