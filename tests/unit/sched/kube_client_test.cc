// Tests the client against a real HTTPS server with its own certificates.
#include "kube/api/client.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "../runtime/process_support.h"
#include "http/http.h"
#include "temporary_directory.h"

namespace kube_client_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

namespace {

class Server {
 public:
  Server()
      : process_(STDOUT_FILENO, [this] {
          ::execlp("python3", "python3", ADAPTDL_KUBE_SERVER, directory_.path().c_str(), nullptr);
          return 127;
        }) {
    const json ports = json::parse(process_.line());
    port_ = ports[0];
    proxy_ = ports[1];
  }
  std::string file(const char* name) const { return (directory_.path() / name).string(); }
  Access access() const {
    Access access;
    access.context = "lab";
    access.server = fmt::format("https://127.0.0.1:{}", port_);
    access.certificate_authority.file = file("ca.pem");
    access.tls_server_name = "cluster.test";
    return access;
  }
  int port() const { return port_; }
  int proxy() const { return proxy_; }

 private:
  ::testing::TemporaryDirectory directory_;
  ::adaptdl::testing::Process process_;
  int port_ = 0, proxy_ = 0;
};

// All cases share one server, because creating its certificates takes a while.
Server& server() {
  static Server one;
  return one;
}

Client::Options quick(std::chrono::milliseconds patience = 300ms) {
  Client::Options options;
  options.patience = patience;
  options.connect_timeout = 30s;
  return options;
}

std::string error_of(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("tls-server-name overrides the name in the certificate check, but not the Host header") {
  Client client(server().access(), quick());
  CHECK(client.get("/x")["host"] == fmt::format("127.0.0.1:{}", server().port()));
}

TEST_CASE("a certificate for another name or from another authority is rejected unless verification is disabled") {
  Access other_name = server().access();
  other_name.tls_server_name.clear();
  const std::string names = error_of([&] { Client(other_name, quick()).get("/x"); });
  CHECK(has(names, "cannot establish a TLS connection to the cluster (context 'lab') at https://127.0.0.1"));
  Access other_authority = server().access();
  other_authority.certificate_authority.file = server().file("stranger.pem");
  CHECK(has(error_of([&] { Client(other_authority, quick()).get("/x"); }), "cannot establish a TLS connection"));
  other_authority.insecure_skip_tls_verify = true;
  CHECK(Client(other_authority, quick()).get("/x")["count"] > 0);
}

TEST_CASE("a client certificate is presented to the server") {
  Access access = server().access();
  CHECK(Client(access, quick()).get("/x")["subject"] == json::array());
  access.client_certificate.file = server().file("client.pem");
  access.client_key.file = server().file("client.key");
  CHECK(Client(access, quick()).get("/x")["subject"] == json{"the-client"});
}

TEST_CASE("the kubeconfig's proxy is used even for a loopback address, and tunnels TLS") {
  Access access = server().access();
  CHECK(Client(access, quick()).get("/x")["proxied"] == false);
  access.proxy_url = fmt::format("http://127.0.0.1:{}", server().proxy());
  CHECK(Client(access, quick()).get("/x")["proxied"] == true);
}

TEST_CASE("requests with different methods reuse one connection") {
  Client client(server().access(), quick());
  const int before = client.get("/x")["connections"];
  client.patch("/x", Patch::kMerge, {{"a", 1}});
  client.create("/x", {{"a", 1}});
  CHECK(client.get("/x")["connections"] == before);
}

TEST_CASE("patch and delete requests have the right content type, query, token and options") {
  Access access = server().access();
  access.token.value = "s3cret";
  Client client(access, quick());
  CHECK(client.patch("/x", Patch::kMerge, {{"a", 1}})["type"] == "application/merge-patch+json");
  CHECK(client.patch("/x", Patch::kJson, json::array())["type"] == "application/json-patch+json");
  const json applied = client.patch("/x", Patch::kApply, {{"a", 1}}, {{"fieldManager", "a b&c"}});
  CHECK(applied["type"] == "application/apply-patch+yaml");
  CHECK(applied["path"] == "/x?fieldManager=a%20b%26c");
  CHECK(applied["authorization"] == "Bearer s3cret");
  RemoveOptions options{Propagation::kForeground, 5s, "u"};
  const json removed = client.remove("/x", options);
  CHECK(removed["method"] == "DELETE");
  CHECK(json::parse(removed["body"].get<std::string>()) == json{{"apiVersion", "v1"},
                                                                {"kind", "DeleteOptions"},
                                                                {"propagationPolicy", "Foreground"},
                                                                {"gracePeriodSeconds", 5},
                                                                {"preconditions", {{"uid", "u"}}}});
}

TEST_CASE("reads and changes are retried after the delay that a busy server requests" * doctest::test_suite("slow")) {
  Client client(server().access(), quick(60s));
  const auto start = Clock::now();
  const auto ask = [&](bool read) {
    const json answer = read ? client.get("/busy-read") : client.create("/busy-write", json::object());
    CHECK(answer["count"] == 2);
    CHECK(Clock::now() - start >= 1s);
  };
  const std::jthread reading(ask, true);
  ask(false);
}

TEST_CASE("only reads are retried during a brief outage of the server") {
  Client client(server().access(), quick(60s));
  CHECK(client.get("/down-read")["count"] == 3);
  CHECK_THROWS_AS(client.create("/down-write", json::object()), ApiError);
}

TEST_CASE("a truncated response is a connection error, and a change is not retried after it") {
  Client client(server().access(), quick());
  CHECK_THROWS_AS(client.get("/cut-read"), http::ConnectionError);
  CHECK_THROWS_AS(client.create("/cut-write", json::object()), http::ConnectionError);
  CHECK(client.get("/count-of?/cut-write")["count"] == 1);
}

TEST_CASE("a list continues with the new continue token that the server returns for an expired one") {
  Client client(server().access(), quick());
  std::vector<json> objects;
  const std::string version = client.list("/page", {"a=b", ""}, [&](json&& each) { objects.push_back(each); });
  CHECK(version == "7");
  REQUIRE(objects.size() == 2);
  CHECK(objects[1]["path"] == "/page?limit=500&labelSelector=a%3Db&continue=later");
}

TEST_CASE("the error for a forbidden request names the request and the context, and contains no secret") {
  Access access = server().access();
  access.token.value = "s3cret";
  const std::string error = error_of([&] { Client(access, quick()).get("/forbidden"); });
  CHECK(has(error, "GET /forbidden: no right"));
  CHECK(has(error, "lab"));
  CHECK_FALSE(has(error, "s3cret"));
  CHECK(has(error_of([&] { Client(access, quick()).get("/html"); }), "not a JSON object"));
}

TEST_CASE("a 404 for AdaptDLJobs means that they are not installed, unless it names an object") {
  Client client(server().access(), quick());
  CHECK_THROWS_AS(client.list(path(kAdaptDLJobs, "n")), KindNotInstalled);
  CHECK(has(error_of([&] { client.create(path(kAdaptDLJobs, "n"), {}); }),
            "the cluster of context 'lab' does not have the resource AdaptDLJob"));
  for (const std::string& missing : {path(kAdaptDLJobs, "n", "x"), path(kDeviceClasses, "")})
    CHECK(error_of([&] { client.get(missing); }) == "GET " + missing + ": not here");
}

TEST_CASE("an unreachable server is reported in time, with its address and the cause but without credentials" *
          doctest::test_suite("slow")) {
  Access access = server().access();
  access.server = "https://user:s3cret@127.0.0.1:1";
  const auto start = Clock::now();
  const std::string error = error_of([&] { Client(access, quick(1s)).get("/x"); });
  CHECK(has(error, "cannot reach the cluster (context 'lab') at https://127.0.0.1:1: connection refused"));
  CHECK_FALSE(has(error, "s3cret"));
  CHECK(Clock::now() - start < 25s);
}

TEST_CASE("a stop request promptly interrupts a call, a stream and a wait before a retry" *
          doctest::test_suite("slow")) {
  constexpr auto kSoon = 15s;
  Client client(server().access(), quick(60s));
  const auto stopped_after = [](const std::function<void(std::stop_token)>& ask) {
    std::stop_source source;
    Clock::time_point asked;
    std::jthread stopper([&] {
      std::this_thread::sleep_for(300ms);
      asked = Clock::now();
      source.request_stop();
    });
    try {
      ask(source.get_token());
    } catch (const http::Stopped&) {
    }
    const auto ended = Clock::now();
    stopper.join();
    return ended - asked;
  };
  CHECK(stopped_after([&](std::stop_token stop) { client.get("/slow", {}, stop); }) < kSoon);
  CHECK(stopped_after([&](std::stop_token stop) {
          client.stream("/stream", {}, stop, [](std::string_view) { return true; });
        }) < kSoon);
  Access nowhere = server().access();
  nowhere.server = "https://127.0.0.1:1";
  Client away(nowhere, quick(60s));
  CHECK(stopped_after([&](std::stop_token stop) { away.get("/x", {}, stop); }) < kSoon);
}

TEST_CASE("a stream delivers data as it arrives and ends when the reader stops it") {
  Client client(server().access(), quick());
  std::string got;
  client.stream("/stream", {}, {}, [&](std::string_view text) {
    got += text;
    return got.size() < 10;
  });
  CHECK(got.rfind("tick\ntick\n", 0) == 0);
  CHECK_THROWS_AS(client.stream("/forbidden", {}, {}, [](std::string_view) { return true; }), ApiError);
}

}  // namespace kube_client_test
