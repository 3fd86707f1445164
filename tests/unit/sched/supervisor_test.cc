// Tests the supervisor with the real clients of the runtime.
#include "supervisor/supervisor.h"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"
#include "adaptdl/supervisor.h"
#include "error_of.h"
#include "golden.h"
#include "supervisor_support.h"

namespace supervisor_test {

using namespace adaptdl;
using namespace adaptdl::testing;
using namespace std::chrono_literals;
using nlohmann::json;
using sched::Supervisor;
using sched::WithoutToken;

namespace {

const std::string kJob = "ns/a job";
const std::string kPath = "/ns/a%20job";

struct Served {
  explicit Served(const sched::SupervisorOptions& options = {}) : supervisor(options, listener) {
    supervisor.add_job(kJob);
  }
  RecordingListener listener;
  Supervisor supervisor;
};

json next_generation(const Supervisor& supervisor, const std::string& query) {
  const http::Response response = request(supervisor, "GET", "/generation" + kPath + query);
  REQUIRE(response.status == 200);
  return json::parse(response.body);
}

}  // namespace

TEST_CASE("the supervisor answers health checks and returns its URL") {
  const Served served;
  CHECK(request(served.supervisor, "GET", "/healthz").status == 200);
  CHECK(served.supervisor.url() == fmt::format("http://127.0.0.1:{}", served.supervisor.port()));
}

TEST_CASE("metrics are served without a token if the owner provides some") {
  CHECK(request(Served().supervisor, "GET", "/metrics").status == 404);
  sched::SupervisorOptions options;
  options.metrics = [] { return std::string("up 1\n"); };
  options.without_token = sched::WithoutToken::kRefused;
  const Served served(options);
  const http::Response response = request(served.supervisor, "GET", "/metrics");
  CHECK(response.status == 200);
  CHECK(response.body == "up 1\n");
  CHECK(request(served.supervisor, "PUT", "/metrics").status == 405);
}

TEST_CASE("the listening socket and connections are closed on exec") {
  const Served served;
  RawClient client(served.supervisor.port());
  REQUIRE(client.get("/healthz"));
  REQUIRE(client.answer() == 200);
  const auto own_sockets = [&served] {
    std::vector<int> found;
    for (int fd = 3; fd < 1024; ++fd) {
      sockaddr_in name{};
      socklen_t size = sizeof name;
      if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 && name.sin_family == AF_INET &&
          ntohs(name.sin_port) == served.supervisor.port())
        found.push_back(fd);
    }
    return found;
  };
  REQUIRE(own_sockets().size() == 2);  // the listening socket and the connection
  for (const int fd : own_sockets()) CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("replicas discover their peers once the addresses of their group are set") {
  Served served;
  served.supervisor.set_addresses(kJob, 0, {"10.0.0.9"});
  auto found =
      std::async(std::launch::async, [&] { return supervisor::discover(served.supervisor.url(), kJob, 1, 60s); });
  CHECK(request(served.supervisor, "GET", "/discover" + kPath + "/1?timeout=0.1").status == 408);
  served.supervisor.set_addresses(kJob, 1, {"10.0.0.1", "10.0.0.2"});
  CHECK(found.get() == std::vector<std::string>{"10.0.0.1", "10.0.0.2"});
  CHECK(request(served.supervisor, "GET", "/discover" + kPath + "/0?timeout=0").status == 408);
}

TEST_CASE("hints are merged, null removes a hint, and the listener is notified of changes") {
  Served served;
  ::setenv("ADAPTDL_SUPERVISOR_URL", served.supervisor.url().c_str(), 1);
  post_sched_hints({{"initBatchSize", 16}, {"gradParams", {{"norm", 1.5}, {"var", 2}}}, {"liveRescale", true}}, kJob);
  post_sched_hints({{"initBatchSize", nullptr}, {"gradParams", {{"norm", 3}, {"var", 2}}}}, kJob);
  post_sched_hints({{"liveRescale", true}}, kJob);
  post_sched_hints({{"liveRescale", true}}, "ns/other");
  ::unsetenv("ADAPTDL_SUPERVISOR_URL");
  CHECK(served.supervisor.hints(kJob) == json{{"gradParams", {{"norm", 3}, {"var", 2}}}, {"liveRescale", true}});
  CHECK(served.listener.hints() == std::vector<std::string>{kJob, kJob});
  CHECK(served.supervisor.hints("ns/other") == json::object());
}

TEST_CASE("until all jobs are known, requests for an unknown job get a 408 response") {
  Served served({.all_jobs_known = false});
  CHECK(request(served.supervisor, "GET", "/healthz").status == 200);
  CHECK(request(served.supervisor, "GET", "/discover/ns/late/0?timeout=0").status == 408);
  CHECK(request(served.supervisor, "PUT", "/hints/ns/late", "{}").status == 408);
  served.supervisor.add_job("ns/late");
  served.supervisor.set_addresses("ns/late", 0, {"10.0.0.1"});
  served.supervisor.set_all_jobs_known();
  CHECK(request(served.supervisor, "GET", "/discover/ns/late/0?timeout=0").status == 200);
  CHECK(request(served.supervisor, "GET", "/discover/ns/other/0?timeout=0").status == 404);
}

TEST_CASE("restored hints are merged with later ones") {
  Served served;
  served.supervisor.set_hints(kJob, {{"initBatchSize", 16}, {"progress", 3}});
  CHECK(request(served.supervisor, "PUT", "/hints" + kPath, R"({"progress": 4})").status == 200);
  CHECK(served.supervisor.hints(kJob) == json{{"initBatchSize", 16}, {"progress", 4}});
  served.supervisor.set_hints(kJob, nullptr);
  CHECK(served.supervisor.hints(kJob) == json::object());
}

TEST_CASE("hints from the Python package are accepted with nulls and zeros, and without a token") {
  Served served;
  served.supervisor.add_job("ns/python", "s3cret");
  const auto put = [&](const std::string& hints) {
    return request(served.supervisor, "PUT", "/hints/ns/python", hints).status;
  };
  CHECK(put(R"({"initBatchSize": 16, "localBszBounds": [4, 32], "globalBatchSize": null, "maxBatchSize": 64,)"
            R"( "maxProfiledReplicas": 2, "gradientAccumulation": true, "gradParams": {"norm": 0.0, "var": 1e-06},)"
            R"( "perfParams": {"alpha_c": 0.1, "beta_c": 1e-08, "alpha_n": 0.2, "beta_n": 1e-08, "alpha_r": 0.1,)"
            R"( "beta_r": 1e-08, "gamma": 1.0000000000000002}})") == 200);
  CHECK(served.supervisor.hints("ns/python").size() == 7);
  CHECK(put(R"({"initBatchSize": 0, "localBszBounds": null, "globalBatchSize": null, "maxBatchSize": 0,)"
            R"( "maxProfiledReplicas": 0, "gradientAccumulation": false, "gradParams": null, "perfParams": null})") ==
        200);
  CHECK(served.supervisor.hints("ns/python") == json{{"gradientAccumulation", false}});
}

TEST_CASE("the listener is notified of replicas that discover their peers without a token") {
  Served served;
  const std::string target = "/discover" + kPath + "/0?timeout=0";
  request(served.supervisor, "GET", target, "", "s3cret");
  CHECK(served.listener.foreign().empty());
  request(served.supervisor, "GET", target);
  CHECK(served.listener.foreign() == std::vector<std::string>{kJob});
}

TEST_CASE("a request for a generation is answered as soon as a later one is set") {
  Served served;
  served.supervisor.set_generation(kJob, {0, {{"0-0", "127.0.0.1", 5000}}});
  const json first{{"generation", 0}, {"replicas", {{{"id", "0-0"}, {"address", "127.0.0.1"}, {"port", 5000}}}}};
  CHECK(next_generation(served.supervisor, "") == first);
  CHECK(next_generation(served.supervisor, "?after=-1&timeout=30") == first);
  auto later =
      std::async(std::launch::async, [&] { return next_generation(served.supervisor, "?after=0&timeout=60"); });
  CHECK(request(served.supervisor, "GET", "/generation" + kPath + "?after=0&timeout=0.1").status == 408);
  served.supervisor.set_generation(kJob, {1, {{"0-0", "127.0.0.1", 5001}, {"0-1", "127.0.0.1", 5002}}});
  const json second = later.get();
  CHECK(second["generation"] == 1);
  CHECK(second["replicas"].size() == 2);
  CHECK(second["replicas"][1]["id"] == "0-1");
}

TEST_CASE("generations may restart at 0 after they are cleared") {
  Served served;
  served.supervisor.set_generation(kJob, {7, {}});
  served.supervisor.clear_generation(kJob);
  CHECK(request(served.supervisor, "GET", "/generation" + kPath + "?timeout=0").status == 408);
  served.supervisor.set_generation(kJob, {0, {}});
  CHECK(next_generation(served.supervisor, "")["generation"] == 0);
}

TEST_CASE("the listener is notified of replicas that are waiting for a generation or report a broken group") {
  Served served;
  auto newcomer = std::async(std::launch::async,
                             [&] { return next_generation(served.supervisor, "?after=2&replica=0-4&timeout=60"); });
  CHECK(served.listener.waiters(1)[0] == RecordingListener::Waiter(kJob, "0-4", 2, false));
  auto broken = std::async(std::launch::async, [&] {
    return next_generation(served.supervisor, "?after=2&replica=0-1&broken=1&timeout=60");
  });
  CHECK(served.listener.waiters(2)[1] == RecordingListener::Waiter(kJob, "0-1", 2, true));
  served.supervisor.set_generation(kJob, {3, {}});
  CHECK(newcomer.get()["generation"] == 3);
  CHECK(broken.get()["generation"] == 3);
  CHECK(served.listener.waiters(2).size() == 2);
}

TEST_CASE("a listener may set a generation from within its callback") {
  struct Admitting : RecordingListener {
    void replica_waits(const std::string& job_id, const std::string&, int after, bool) override {
      supervisor->set_generation(job_id, {after + 1, {}});
    }
    Supervisor* supervisor = nullptr;
  } admitting;
  Supervisor supervisor({}, admitting);
  admitting.supervisor = &supervisor;
  supervisor.add_job(kJob);
  CHECK(next_generation(supervisor, "?after=4&replica=a&timeout=60")["generation"] == 5);
}

TEST_CASE("a waiting request gets a 404 response when its job is removed") {
  Served served;
  auto waiting = std::async(std::launch::async, [&] {
    return request(served.supervisor, "GET", "/generation" + kPath + "?replica=a&timeout=60").status;
  });
  served.listener.waiters(1);
  served.supervisor.remove_job(kJob);
  CHECK(waiting.get() == 404);
}

TEST_CASE("a wrong token is always rejected; a missing one is rejected for generations and if so configured") {
  for (const auto without : {WithoutToken::kServed, WithoutToken::kServedToOwner, WithoutToken::kRefused}) {
    Served served({.without_token = without});
    served.supervisor.add_job("ns/secret", "s3cret");
    const auto status = [&](const std::string& token) {
      const int discovers = request(served.supervisor, "GET", "/discover/ns/secret/0?timeout=0", "", token).status;
      const int hints = request(served.supervisor, "PUT", "/hints/ns/secret", "{}", token).status;
      CHECK(discovers == (hints == 200 ? 408 : hints));
      return hints;
    };
    CHECK(status("s3cret") == 200);
    for (const std::string wrong : {"s3cre", "s3crets", "S3cret"}) CHECK(status(wrong) == 403);
    CHECK(status("") == (without == WithoutToken::kRefused ? 403 : 200));
    CHECK(request(served.supervisor, "GET", "/generation/ns/secret?timeout=0").status == 403);
    CHECK(request(served.supervisor, "GET", "/generation/ns/secret?timeout=0", "", "s3cret").status == 408);
    CHECK(request(served.supervisor, "GET", "/healthz").status == 200);
    CHECK(request(served.supervisor, "PUT", "/hints" + kPath, "{}").status == 200);
  }
}

TEST_CASE("requests with a foreign Host header, as in DNS rebinding, require the token") {
  Served served({.without_token = WithoutToken::kServedToOwner});
  served.supervisor.add_job("ns/secret", "s3cret");
  const auto hints = [&](const std::string& headers) {
    RawClient client(served.supervisor.port());
    client.send(fmt::format("PUT /hints/ns/secret HTTP/1.1\r\n{}Content-Length: 2\r\n\r\n{{}}", headers));
    return client.answer();
  };
  for (const char* own : {"127.0.0.1", "localhost", "[::1]"})
    CHECK(hints(fmt::format("Host: {}:{}\r\n", own, served.supervisor.port())) == 200);
  CHECK(hints("Host: evil.example:80\r\n") == 403);
  CHECK(hints("Host: 127.0.0.1.evil.example:80\r\n") == 403);
  CHECK(hints("Host: evil.example:80\r\nAuthorization: Bearer s3cret\r\n") == 200);
}

TEST_CASE("another user needs the token, even on connections that are closed early") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can be another user");
    return;
  }
  Served served({.without_token = WithoutToken::kServedToOwner});
  served.supervisor.add_job("ns/secret", "s3cret");
  const auto as_nobody = [](const std::function<int()>& ask) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(::setresuid(65534, 65534, 65534) == 0 ? ask() : 1);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  const auto hints = [&](const std::string& authorization) {
    RawClient client(served.supervisor.port());
    client.send(fmt::format("PUT /hints/ns/secret HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{}Content-Length: 2\r\n\r\n{{}}",
                            authorization));
    return client.answer() / 100;  // an exit status has only 8 bits
  };
  const auto discovers = [&] {
    RawClient client(served.supervisor.port());
    client.get("/discover/ns/secret/0?timeout=0");
    return client.answer() % 100;
  };
  CHECK(as_nobody([&] { return hints(""); }) == 4);
  CHECK(as_nobody([&] { return hints("Authorization: Bearer wrong\r\n"); }) == 4);
  CHECK(as_nobody([&] { return hints("Authorization: Bearer s3cret\r\n"); }) == 2);
  CHECK(as_nobody([&] { return hints("Authorization: Basic s3cret\r\n"); }) == 4);
  CHECK(as_nobody(discovers) == 3);
  CHECK(as_nobody([&] {
          RawClient client(served.supervisor.port());
          client.get("/healthz");
          return client.answer() / 100;
        }) == 2);
  CHECK(hints("") == 2);
  CHECK(hints("Authorization: Bearer wrong\r\n") == 4);

  // Once a process has closed its socket, the kernel reports root as the socket's owner.
  as_nobody([&] {
    for (int i = 0; i < 200; ++i) {
      RawClient client(served.supervisor.port());
      const std::string body = R"({"progress": 7})";
      client.send(
          fmt::format("PUT /hints/ns/secret HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    }
    return 0;
  });
  CHECK(hints("") == 2);
  CHECK(served.supervisor.hints("ns/secret") == json::object());
}

TEST_CASE("1500 replicas can wait at the same time, and all are answered") {
  allow_many_descriptors();
  Served served;
  std::vector<RawClient> clients;
  clients.reserve(1500);
  for (int i = 0; i < 1500; ++i) {
    clients.emplace_back(served.supervisor.port());
    REQUIRE(clients.back().get(fmt::format("/generation{}?replica={}&timeout=300", kPath, i)));
  }
  served.listener.waiters(clients.size());
  served.supervisor.set_generation(kJob, {0, {}});
  for (RawClient& client : clients) REQUIRE(client.answer() == 200);
}

TEST_CASE("destroying the supervisor closes the connections of waiting replicas") {
  auto served = std::make_unique<Served>();
  RawClient client(served->supervisor.port());
  client.get("/generation" + kPath + "?replica=a&timeout=300");
  served->listener.waiters(1);
  served.reset();
  CHECK(client.closed());
}

TEST_CASE("the server's thread blocks the signals of the process") {
  const Served served;
  request(served.supervisor, "GET", "/healthz");
  int others = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* task = ::readdir(tasks)) {
    if (task->d_name[0] == '.' || std::stoi(task->d_name) == ::getpid()) continue;
    std::ifstream status(fmt::format("/proc/self/task/{}/status", task->d_name));
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::stoull(line.substr(7), nullptr, 16);
      ++others;
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1}) CHECK((blocked >> (number - 1) & 1) == 1);
    }
  }
  ::closedir(tasks);
  CHECK(others >= 1);  // a sanitizer may have another thread
}

TEST_CASE("an invalid address and a port in use are reported in the error") {
  RecordingListener listener;
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { Supervisor({.address = "localhost"}, listener); }));
  const Served served;
  const std::string taken =
      fmt::format("the supervisor cannot listen on 127.0.0.1:{}: Address already in use", served.supervisor.port());
  CHECK_THROWS_WITH_AS(Supervisor({.port = served.supervisor.port()}, listener), taken.c_str(), Error);
}

}  // namespace supervisor_test
