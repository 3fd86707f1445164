// Tests the supervisor with malicious and erroneous requests.
#include <dirent.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "golden.h"
#include "supervisor/supervisor.h"
#include "supervisor_support.h"

namespace supervisor_hostile_test {

using namespace adaptdl;
using namespace adaptdl::testing;
using namespace std::chrono_literals;
using nlohmann::json;
using sched::Supervisor;

namespace {

struct Served {
  explicit Served(const sched::SupervisorOptions& options = {}) : supervisor(options, listener) {
    supervisor.add_job("ns/job");
  }
  // PUTs hints, and returns the one-line body of the response if they are rejected; "" if they are accepted.
  std::string refusal(const std::string& body) {
    const http::Response response = request(supervisor, "PUT", "/hints/ns/job", body);
    if (response.status == 200) return "";
    CHECK(response.status == 400);
    CHECK(response.body.find('\n') == std::string::npos);
    return response.body;
  }
  int status(const std::string& method, const std::string& target) {
    return request(supervisor, method, target).status;
  }
  bool alive() { return request(supervisor, "PUT", "/hints/ns/job", R"({"progress": 1})").status == 200; }

  RecordingListener listener;
  Supervisor supervisor;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("unknown targets return 404, wrong methods 405 and malformed targets 400") {
  Served served;
  for (const char* target : {"/", "/hints", "/hints/ns", "/hints/ns/job/x", "/discover/ns/job", "/healthz/x", "/x?y",
                             "/generation/ns/other", "/hints/ns/other", "/discover/ns/other/0", "/hints//job"})
    CHECK_MESSAGE(served.status(std::string(target).starts_with("/hints") ? "PUT" : "GET", target) == 404, target);
  for (const char* target : {"/healthz", "/discover/ns/job/0", "/generation/ns/job"})
    for (const char* method : {"PUT", "POST", "DELETE"}) CHECK(served.status(method, target) == 405);
  RawClient client(served.supervisor.port());
  client.get("/hints/ns/job");
  CHECK(client.answer() == 405);
  CHECK(client.head.find("Allow: PUT\r\n") != std::string::npos);
  for (const char* target : {"/generation/ns/j%4", "/generation/ns/j%zz", "/generation/ns/%", "/generation/ns/job?a=%1",
                             "/generation/ns/job?after=x", "/generation/ns/job?after=", "/generation/ns/job?after=1e9",
                             "/generation/ns/job?after=99999999999", "/generation/ns/job?timeout=nan",
                             "/generation/ns/job?timeout=5s", "/generation/ns/job?replica=", "/discover/ns/job/x",
                             "/generation/ns/job?replica=a%0Ab", "/generation/ns/job?broken=1"})
    CHECK_MESSAGE(served.status("GET", target) == 400, target);
  CHECK(served.status("GET", "/generation/ns/job?replica=" + std::string(257, 'x')) == 400);
  CHECK(served.listener.waiters(0).empty());
}

TEST_CASE("an out-of-range timeout is clamped to the nearest valid value") {
  Served served;
  CHECK(served.status("GET", "/generation/ns/job?timeout=-5") == 408);
  RawClient client(served.supervisor.port());
  client.get("/generation/ns/job?timeout=1e30&replica=a");
  served.listener.waiters(1);
  served.supervisor.set_generation("ns/job", {0, {}});
  CHECK(client.answer() == 200);
}

TEST_CASE("invalid hints are rejected with a one-line error that names the key, and change nothing") {
  Served served;
  CHECK(served.refusal(R"({"initBatchSize": "16"})").find("'initBatchSize'") != std::string::npos);
  CHECK(served.refusal(R"({"initBatchSize": -1})").find("'initBatchSize'") != std::string::npos);
  CHECK(served.refusal(R"({"perfParams": {"gamma": 0}})").find("'perfParams.gamma'") != std::string::npos);
  CHECK(served.refusal(R"({"perfParams": {"delta": 1}})").find("'perfParams.delta'") != std::string::npos);
  CHECK_GOLDEN(served.refusal(R"({"bad\nkey\u0007": 1})"));
  CHECK(served.refusal(R"({"progress": 1, "liveRescale": "yes"})").find("'liveRescale'") != std::string::npos);
  CHECK_GOLDEN(served.refusal("[]"));
  CHECK_GOLDEN(served.refusal(""));
  CHECK_GOLDEN(served.refusal(R"({"progress": )"));
  CHECK(served.refusal("{\"progress\": \"\xff\"}").find("invalid JSON") != std::string::npos);
  CHECK(served.refusal(R"({"progress": NaN})").find("invalid JSON") != std::string::npos);
  CHECK(served.refusal(R"({"progress": Infinity})").find("invalid JSON") != std::string::npos);
  CHECK_GOLDEN(served.refusal(R"({"progress": 1e999})"));
  CHECK(served.supervisor.hints("ns/job") == json::object());
  CHECK(served.listener.hints().empty());
}

TEST_CASE("a deeply nested body is rejected") {
  Served served;
  CHECK_GOLDEN(served.refusal(std::string(60000, '[')));
  std::string objects;
  for (int i = 0; i < 10000; ++i) objects += R"({"a":)";
  CHECK_GOLDEN(served.refusal(objects));
  CHECK(served.alive());
}

TEST_CASE("a body over 64 KiB gets a 413 response, with or without a declared length") {
  Served served;
  CHECK(served.refusal(R"({"progress": 1)" + std::string(65536 - 15, ' ') + "}") == "");
  CHECK(request(served.supervisor, "PUT", "/hints/ns/job", std::string(65537, ' ')).status == 413);
  CHECK(request(served.supervisor, "PUT", "/hints/ns/job", std::string(8 << 20, ' ')).status == 413);
  RawClient declared(served.supervisor.port());
  declared.send("PUT /hints/ns/job HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
  CHECK(declared.answer() == 413);
  RawClient chunked(served.supervisor.port());
  chunked.send("PUT /hints/ns/job HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 9; ++i) chunked.send("2000\r\n" + std::string(0x2000, ' ') + "\r\n");
  CHECK(chunked.answer() == 413);
  CHECK(served.alive());
}

TEST_CASE("an endless header gets a 431 response, and invalid HTTP a 400 response") {
  Served served;
  RawClient flood(served.supervisor.port());
  flood.send("GET /healthz HTTP/1.1\r\n");
  for (int i = 0; i < 200 && flood.send(fmt::format("X-{}: {}\r\n", i, std::string(100, 'x'))); ++i) {
  }
  CHECK(flood.answer() == 431);
  CHECK(flood.closed());
  RawClient line(served.supervisor.port());
  line.send("GET /" + std::string(20000, 'x'));
  CHECK(line.answer() == 431);
  RawClient garbage(served.supervisor.port());
  garbage.send("\x16\x03\x01 what is this\r\n\r\n");
  CHECK(garbage.answer() == 400);
  CHECK(served.alive());
}

TEST_CASE("pipelined requests are answered in order") {
  Served served;
  RawClient client(served.supervisor.port());
  client.send(
      "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /generation/ns/job?timeout=0.2 HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.answer() == 200);
  CHECK(client.answer() == 408);
  CHECK(client.answer() == 404);
}

TEST_CASE("a request that arrives too slowly is cut off at its deadline" * doctest::test_suite("slow")) {
  Served served({.request_time = 1s});
  RawClient slow(served.supervisor.port());
  const auto began = std::chrono::steady_clock::now();
  slow.send("GET /healthz HTTP/1.1\r\n");
  int sent = 0;
  while (slow.send("X: y\r\n") && std::chrono::steady_clock::now() - began < kPatience) {
    ++sent;
    std::this_thread::sleep_for(10ms);  // slowly, as an attacker would
  }
  CHECK(std::chrono::steady_clock::now() - began < kPatience);
  CHECK(slow.closed());
  RawClient body(served.supervisor.port());
  body.send("PUT /hints/ns/job HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  CHECK(body.closed());
  CHECK(served.alive());
}

TEST_CASE("an idle connection times out, but a waiting one does not" * doctest::test_suite("slow")) {
  Served served({.request_time = 1s, .idle_time = 1s});
  RawClient waiting(served.supervisor.port());
  waiting.get("/generation/ns/job?timeout=300&replica=a");
  served.listener.waiters(1);
  RawClient silent(served.supervisor.port()), used(served.supervisor.port());
  used.get("/healthz");
  CHECK(used.answer() == 200);
  CHECK(silent.closed());
  CHECK(used.closed());
  served.supervisor.set_generation("ns/job", {0, {}});
  CHECK(waiting.answer() == 200);
}

TEST_CASE("a thousand idle connections do not block a replica") {
  allow_many_descriptors();
  Served served({.max_connections = 100, .idle_time = 300s});
  RawClient waiting(served.supervisor.port());
  waiting.get("/generation/ns/job?timeout=300&replica=a");
  served.listener.waiters(1);
  std::vector<RawClient> idle;
  idle.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    idle.emplace_back(served.supervisor.port());
    if (i % 2 == 0) idle.back().send("GET /healthz HTTP/1.1\r\n");
  }
  CHECK(served.alive());
  // The connection that has been idle longest is closed first, and recent ones are still served.
  CHECK(idle.front().closed());
  CHECK(idle.back().get("/healthz"));
  CHECK(idle.back().answer() == 200);
  served.supervisor.set_generation("ns/job", {0, {}});
  CHECK(waiting.answer() == 200);
}

TEST_CASE("when all connections are waiting, the one that has waited longest gets a 408 response") {
  Served served({.max_connections = 2});
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(served.supervisor.port());
    clients.back().get(fmt::format("/generation/ns/job?timeout=300&replica={}", i));
    served.listener.waiters(clients.size());
  }
  CHECK(clients[0].answer() == 408);
  CHECK(clients[0].closed());
  served.supervisor.set_generation("ns/job", {0, {}});
  CHECK(clients[1].answer() == 200);
  CHECK(clients[2].answer() == 200);
}

TEST_CASE("the connection of a client that disconnects while waiting is released") {
  Served served;
  const std::size_t before = open_descriptors();
  {
    std::vector<RawClient> clients;
    for (int i = 0; i < 20; ++i) {
      clients.emplace_back(served.supervisor.port());
      clients.back().get(fmt::format("/generation/ns/job?timeout=300&replica={}", i));
    }
    served.listener.waiters(clients.size());
    CHECK(open_descriptors() >= before + 40);
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (open_descriptors() > before && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  CHECK(open_descriptors() <= before);
}

TEST_CASE("the supervisor survives running out of descriptors and serves again afterwards") {
  Served served;
  CHECK(served.alive());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const adaptdl::Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit none = before;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(served.supervisor.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const std::string get = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
  CHECK(::send(client.get(), get.data(), get.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(get.size()));
  pollfd readable{client.get(), POLLIN, 0};
  CHECK(::poll(&readable, 1, 200) == 0);  // the server has no descriptor for the connection
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(::poll(&readable, 1, 60000) == 1);
  CHECK(served.alive());
}

}  // namespace supervisor_hostile_test
