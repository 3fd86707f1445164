// Tests the control of a run through its real socket. The test's thread acts as the launcher.
#include "local/record/run_control.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <fstream>
#include <future>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "local/base/runtime_directory.h"
#include "local/record/run_client.h"
#include "temporary_directory.h"

namespace run_control_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using nlohmann::json;
using sched::RunControl;
using sched::RunRecord;
using sched::RunRequest;
using sched::RunStatus;
namespace fs = std::filesystem;

namespace {

constexpr int kPatience = 60'000;  // milliseconds

class Home {
 public:
  Home() { ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1); }
  fs::path runs() const { return directory_.path() / "runs"; }
  sched::RunEntry run() const { return sched::find_run(runs(), "job"); }

 private:
  testing::TemporaryDirectory directory_;
};

std::unique_ptr<RunControl> make_control(const Home& home) {
  RunStatus status;
  status.started = std::chrono::system_clock::now();
  auto control = std::make_unique<RunControl>(RunRecord::named(home.runs(), "job"), status);
  control->serve();
  return control;
}

// Waits for the next request, as a launcher does.
RunRequest next(RunControl& control) {
  for (;;) {
    pollfd polled{control.fd(), POLLIN, 0};
    REQUIRE(::poll(&polled, 1, kPatience) == 1);
    auto requests = control.take();
    if (!requests.empty()) return std::move(requests.front());
  }
}

std::string why_refused(const sched::RunEntry& run, const json& request) {
  try {
    return "accepted: " + sched::ask_run(run, request).dump();
  } catch (const Error& error) {
    return error.what();
  }
}

// Returns what the socket sends in response to these bytes, until it closes the connection.
std::string answer_to(const fs::path& socket, const std::string& bytes) {
  const adaptdl::Fd connection = sched::connect_to(socket);
  REQUIRE(connection);
  (void)!::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string text;
  char buffer[1024];
  for (ssize_t size = 0; (size = ::recv(connection.get(), buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  return text;
}

}  // namespace

TEST_CASE("the last published status is returned and stays in the record") {
  const Home home;
  auto control = make_control(home);
  CHECK(sched::status_now(home.run()).state == "starting");
  control->status().state = "running";
  control->status().progress = {{"step", 7}};
  control->publish();
  CHECK(sched::status_now(home.run()).state == "running");
  CHECK(sched::status_now(home.run()).progress["step"] == 7);
  control->status().state = "done";
  control->finish();
  CHECK(home.run().status.state == "done");
  const fs::path socket = home.run().socket;
  CHECK_FALSE(fs::exists(socket));
  control.reset();
  CHECK_FALSE(sched::is_alive(home.run()));
  CHECK_GOLDEN(why_refused(home.run(), {{"request", "stop"}}));
}

TEST_CASE("a request waits for the launcher's answer") {
  const Home home;
  const auto control = make_control(home);
  const auto ask = [&home](const json& request) {
    return std::async(std::launch::async, [run = home.run(), request] { return why_refused(run, request); });
  };
  auto answer = ask({{"request", "resize"}, {"min", 2}, {"max", 5}});
  {
    RunRequest request = next(*control);
    CHECK(request.kind == RunRequest::Kind::kResize);
    CHECK(request.min == 2);
    CHECK(request.max == 5);
    CHECK(sched::status_now(home.run()).state == "starting");  // other requests are answered meanwhile
    request.refuse("it is Sunday");
  }
  CHECK_GOLDEN(answer.get());
  answer = ask(sched::share_request({.weight = 0.5, .replicas = 3}));
  {
    RunRequest request = next(*control);
    CHECK(request.kind == RunRequest::Kind::kShare);
    CHECK(request.share == sched::RunShare{0.5, 3});
    request.accept();
  }
  CHECK(answer.get() == "accepted: {}");
  answer = ask({{"request", "checkpoint"}});
  next(*control).accept({{"path", "/c/checkpoint-1"}});
  CHECK(answer.get() == R"(accepted: {"path":"/c/checkpoint-1"})");
  answer = ask({{"request", "stop"}});
  CHECK(next(*control).kind == RunRequest::Kind::kStop);  // dropped without an answer
  CHECK_GOLDEN(answer.get());
}

TEST_CASE("a request sent without waiting is answered later or fails when the run ends") {
  const Home home;
  auto control = make_control(home);
  const auto answer_of = [](sched::PendingRequest& pending) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    auto answer = pending.answer();
    while (!answer && std::chrono::steady_clock::now() < deadline) answer = pending.answer();
    return answer;
  };
  sched::PendingRequest first(home.run(), sched::share_request({.weight = 2, .replicas = {}}));
  CHECK_FALSE(first.answer().has_value());
  {
    RunRequest request = next(*control);
    CHECK(request.share == sched::RunShare{2, {}});
    CHECK_FALSE(first.answer().has_value());
    request.accept();
  }
  CHECK(answer_of(first) == json::object());
  sched::PendingRequest second(home.run(), sched::share_request({}));
  next(*control);
  CHECK_GOLDEN(::testing::error_of([&] { answer_of(second); }));
  const sched::RunEntry run = home.run();
  control->finish();
  control.reset();
  CHECK_THROWS_AS(sched::PendingRequest(run, sched::share_request({})), Error);
}

TEST_CASE("a pending request fails when the run ends") {
  const Home home;
  auto control = make_control(home);
  auto answer = std::async(std::launch::async, [run = home.run()] {
    return why_refused(run, {{"request", "checkpoint"}});
  });
  pollfd polled{control->fd(), POLLIN, 0};
  REQUIRE(::poll(&polled, 1, kPatience) == 1);
  control->finish();
  CHECK_GOLDEN(answer.get());
}

TEST_CASE("invalid requests are rejected and do not reach the launcher") {
  const Home home;
  const auto control = make_control(home);
  const fs::path socket = home.run().socket;
  for (const std::string bytes :
       {"{}\n", "[]\n", "no json\n", "{\"request\": 7}\n", "{\"request\": \"explode\"}\n", "\xff\xfe\n"}) {
    CAPTURE(bytes);
    CHECK(answer_to(socket, bytes) ==
          R"({"ok":false,"why":"unknown request: expected status, resize, share, checkpoint, stop or kill"})"
          "\n");
  }
  for (const std::string size : {"", ", \"min\": 0, \"max\": 2", ", \"min\": 3, \"max\": 2",
                                 ", \"min\": \"1\", \"max\": 2", ", \"min\": 1, \"max\": 4294967297"}) {
    CHECK(answer_to(socket, "{\"request\": \"resize\"" + size + "}\n") ==
          R"({"ok":false,"why":"resize expects integers with 1 <= min <= max <= 1000000"})"
          "\n");
  }
  for (const std::string share : {"\"weight\": 0", "\"weight\": -1", "\"weight\": 1e-9", "\"weight\": 1e9",
                                  "\"weight\": \"1\"", "\"weight\": null", "\"replicas\": 0", "\"replicas\": 1.5",
                                  "\"replicas\": 4294967297", "\"replicas\": \"2\"", "\"replicas\": [2]"}) {
    CAPTURE(share);
    CHECK(answer_to(socket, "{\"request\": \"share\", " + share + "}\n") ==
          R"({"ok":false,"why":"share expects a weight from 0.001 to 1000, and at least 1 replica"})"
          "\n");
  }
  CHECK(answer_to(socket, std::string(4096, 'x')) == R"({"ok":false,"why":"the request is too long"})"
                                                     "\n");
  CHECK(control->take().empty());
}

TEST_CASE("a burst of idle connections does not block later requests permanently") {
  const Home home;
  const auto control = make_control(home);
  std::vector<adaptdl::Fd> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(sched::connect_to(home.run().socket));
  idle.clear();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  json answer;
  while (answer.empty() && std::chrono::steady_clock::now() < deadline) {
    try {
      answer = sched::ask_run(home.run(), {{"request", "status"}});
    } catch (const Error&) {
      std::this_thread::sleep_for(10ms);
    }
  }
  CHECK(answer["status"]["state"] == "starting");
}

TEST_CASE("the server's thread does not receive the launcher's signals") {
  const Home home;
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGUSR2);
  const auto control = make_control(home);
  ::pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  ::kill(::getpid(), SIGUSR2);  // would end the process if any thread received it
  const timespec limit{.tv_sec = 60, .tv_nsec = 0};
  CHECK(::sigtimedwait(&mask, nullptr, &limit) == SIGUSR2);
  ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
}

TEST_CASE("a discarded run leaves no record, but keeps that of an earlier run") {
  const Home home;
  make_control(home)->discard();
  CHECK(fs::is_empty(home.runs()));
  make_control(home)->finish();
  make_control(home)->discard();
  CHECK(home.run().status.name == "job");
}

TEST_CASE("a discarded run keeps the checkpoints that a deleted run left") {
  const Home home;
  make_control(home)->finish();
  const fs::path checkpoint = home.runs() / "job" / "checkpoints" / "checkpoint-0";
  fs::create_directories(checkpoint);
  remove_run(home.run(), true);
  make_control(home)->discard();
  CHECK(fs::exists(checkpoint));
  CHECK_FALSE(fs::exists(home.runs() / "job" / "lock"));
}

}  // namespace run_control_test
