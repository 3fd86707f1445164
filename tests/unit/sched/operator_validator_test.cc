// Tests the HTTPS server of the validator and the renewal of its certificate.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "adaptdl/error.h"
#include "http/http.h"
#include "kube/api/certificate.h"
#include "operator/validator/serving_certificate.h"
#include "operator/validator/webhook_server.h"

namespace operator_validator_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using namespace std::chrono_literals;
using kube::Time;

namespace {

constexpr auto kLifetime = 30min;
const char* const kName = "validator.ns.svc";

Time now() { return std::chrono::system_clock::now(); }
ServingCertificate make_certificate(Time when = now()) { return create_serving_certificate({kName}, when, kLifetime); }

http::Request request(const WebhookServer& server, const std::string& bundle, const std::string& body) {
  auto tls = std::make_shared<http::Tls>();
  tls->authority = bundle;
  tls->server_name = kName;
  http::Request request;
  request.method = "POST";
  request.url = fmt::format("https://127.0.0.1:{}/review?timeout=10s", server.port());
  request.body = body;
  request.tls = tls;
  return request;
}

WebhookServer::Answer echo(const std::string&, const std::string& body) { return {200, body}; }

// A connection without TLS that sends these bytes.
class Stranger {
 public:
  Stranger(const WebhookServer& server, const std::string& bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  int socket_;
};

// An API server's view of the certificates, which lags behind by `delay`.
struct Cluster {
  ServingCertificate secret;
  std::string bundle;
  std::vector<std::pair<Time, std::string>> written;

  void write(Time when, const std::string& text) {
    bundle = text;
    written.emplace_back(when, text);
  }
  bool trusts(const ServingCertificate& served, Time when, std::chrono::seconds delay) const {
    std::string known;
    for (const auto& [at, text] : written) {
      if (at + delay <= when) known = text;
    }
    const auto parsed = kube::read_certificate(served.certificate);
    return known.find(served.certificate) != std::string::npos && parsed && parsed->expires > when;
  }
};

// An operator that uses the clock of the test.
struct Replica {
  CertificateRules rules;
  ServingCertificate served;

  void pass(Cluster& cluster, Time when) {
    const std::string bundle = cluster.bundle;
    if (rules.renew(cluster.secret, bundle, when, kLifetime)) cluster.secret = make_certificate(when);
    const CertificateRules::Clock::time_point clock{when.time_since_epoch()};
    const auto step = rules.next(cluster.secret, bundle, clock, when);
    if (step.bundle) cluster.write(when, *step.bundle);
    if (!step.serve) return;
    served = cluster.secret;
    rules.set_served(served);
  }
};

}  // namespace

TEST_CASE("a certificate expires after its lifetime and is renewed after two thirds of it") {
  const Time when = now();
  const ServingCertificate pair = make_certificate(when);
  const auto parsed = kube::read_certificate(pair.certificate);
  REQUIRE(parsed);
  CHECK(parsed->expires - when <= kLifetime);
  CHECK(parsed->expires - when > kLifetime - 2s);
  CHECK_FALSE(must_renew(pair, when, kLifetime));
  CHECK_FALSE(must_renew(pair, when + kLifetime * 2 / 3 - 2s, kLifetime));
  CHECK(must_renew(pair, when + kLifetime * 2 / 3 + 2s, kLifetime));
  CHECK(must_renew({}, when, kLifetime));
  CHECK(must_renew(pair, when, kLifetime / 2));  // the lifetime was reduced
  CHECK(first_certificate("text\n" + pair.certificate + "\r\n" + make_certificate().certificate) == pair.certificate);
  CHECK(first_certificate("text").empty());
  CHECK(must_renew({pair.certificate, make_certificate().key}, when, kLifetime));
  CHECK(must_renew({pair.certificate, "garbage"}, when, kLifetime));
  CHECK(make_certificate(when).certificate != pair.certificate);
}

TEST_CASE("two operators serve only trusted and valid certificates across many renewals" *
          doctest::test_suite("slow")) {
  Cluster cluster;
  std::vector<Replica> replicas(2);
  const Time begin = now();
  // The API servers receive a new bundle within this time.
  constexpr auto kDelay = 5s;
  std::vector<std::string> seen;
  for (int step = 0; step < 1000; ++step) {
    const Time when = begin + step * 7s;
    Replica& replica = replicas[static_cast<std::size_t>(step) % 2];
    if (step % 5 == 4) replica = {};  // restarted
    replica.pass(cluster, when);
    for (const Replica& each : replicas) {
      if (step < 2 || each.served == ServingCertificate()) continue;
      REQUIRE_MESSAGE(cluster.trusts(each.served, when, kDelay), step);
    }
    if (seen.empty() || seen.back() != cluster.secret.certificate) seen.push_back(cluster.secret.certificate);
  }
  // 1000 steps take 116 minutes, and a certificate is renewed after 20 minutes.
  CHECK(seen.size() == 6);
  CHECK(cluster.bundle.size() < 3 * cluster.secret.certificate.size());
}

TEST_CASE("a lost Secret or bundle is restored without serving an untrusted certificate") {
  Cluster cluster;
  Replica replica;
  Time when = now();
  replica.pass(cluster, when);
  const ServingCertificate first = replica.served;
  CHECK(first == cluster.secret);
  cluster.secret = {};
  replica.pass(cluster, when += 10s);
  CHECK(replica.served == first);
  CHECK(cluster.bundle.find(first.certificate) != std::string::npos);
  CHECK(cluster.bundle.find(cluster.secret.certificate) != std::string::npos);
  replica.pass(cluster, when += 10s);
  CHECK(replica.served == first);
  replica.pass(cluster, when += 10s);
  CHECK(replica.served == cluster.secret);
  // Applying the configuration again may have overwritten the bundle.
  cluster.bundle = "garbage";
  replica.pass(cluster, when += 10s);
  CHECK(cluster.bundle == cluster.secret.certificate);
}

TEST_CASE("HTTPS requests are answered only if the client trusts the certificate") {
  WebhookServer server("127.0.0.1", 0, echo);
  const ServingCertificate first = make_certificate(), second = make_certificate();
  CHECK_THROWS_AS(http::send(request(server, first.certificate, "x")), Error);  // serve() has not been called yet
  server.serve(first);
  const http::Response response = http::send(request(server, first.certificate, "body"));
  CHECK(response.status == 200);
  CHECK(response.body == "body");
  CHECK(response.header("content-type") == "application/json");
  CHECK_THROWS_AS(http::send(request(server, second.certificate, "x")), http::TlsError);
  http::Request get = request(server, first.certificate, "");
  get.method = "GET";
  CHECK(http::send(get).status == 405);
  const std::string large(2 << 20, 'x');
  CHECK(http::send(request(server, first.certificate, large)).body == large);
  CHECK_THROWS_AS(http::send(request(server, first.certificate, std::string(5 << 20, 'x'))), Error);
  CHECK_THROWS_AS(server.serve({"garbage", first.key}), Error);
  CHECK(http::send(request(server, first.certificate, "body")).status == 200);
}

TEST_CASE("the certificate is replaced under load without failed requests" * doctest::test_suite("slow")) {
  WebhookServer server("127.0.0.1", 0, echo);
  ServingCertificate served = make_certificate();
  const ServingCertificate next = make_certificate();
  const std::string bundle = served.certificate + next.certificate;
  server.serve(served);
  std::atomic<bool> ends = false;
  std::atomic<int> answered = 0, failed = 0;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, keeps = i % 2 == 0] {
      http::Connections kept;
      while (!ends) {
        try {
          const http::Request what = request(server, bundle, "x");
          (keeps ? kept.send(what) : http::send(what)).status == 200 ? ++answered : ++failed;
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    server.serve(i % 2 == 0 ? next : served);
    const int before = answered;
    while (answered < before + 3 && failed == 0) std::this_thread::yield();
  }
  ends = true;
  clients.clear();
  CHECK(failed == 0);
  CHECK(answered >= 300);
}

TEST_CASE("the handler of a request receives the URL's path without the query") {
  WebhookServer server("127.0.0.1", 0, [](const std::string& path, const std::string&) {
    return WebhookServer::Answer{200, path};
  });
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  CHECK(http::send(request(server, pair.certificate, "x")).body == "/review");
}

TEST_CASE("idle and malformed connections do not block other requests") {
  WebhookServer server("127.0.0.1", 0, echo);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  std::vector<std::unique_ptr<Stranger>> strangers;
  // There are more connections than the server keeps.
  for (int i = 0; i < 400; ++i) {
    const std::string bytes = i % 3 == 0   ? ""
                              : i % 3 == 1 ? "GET / HTTP/1.1\r\n\r\n"
                                           : std::string("\x16\x03\x01\x02\x00", 5);
    strangers.push_back(std::make_unique<Stranger>(server, bytes));
  }
  for (int i = 0; i < 10; ++i) CHECK(http::send(request(server, pair.certificate, "x")).status == 200);
}

TEST_CASE("kept-alive connections do not prevent other clients from connecting" * doctest::test_suite("slow")) {
  WebhookServer server("127.0.0.1", 0, echo);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  std::vector<std::unique_ptr<http::Connections>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<http::Connections>());
    REQUIRE(clients.back()->send(request(server, pair.certificate, "x")).status == 200);
  }
  CHECK(http::send(request(server, pair.certificate, "x")).status == 200);
}

TEST_CASE("the total size of concurrent large requests is limited") {
  std::atomic<int> answering = 0, most = 0;
  std::atomic<bool> ends = false;
  WebhookServer server(
      "127.0.0.1", 0,
      [&](const std::string&, const std::string& body) {
        const int now = ++answering;
        for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
        }
        while (!ends && body.size() > 1000) std::this_thread::sleep_for(1ms);
        --answering;
        return WebhookServer::Answer{200, "{}"};
      },
      100ms);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 6; ++i) {
      clients.emplace_back([&, what = request(server, pair.certificate, std::string(3 << 20, 'x'))] {
        try {
          refused += http::send(what).status == 503;
        } catch (const Error&) {
          ++refused;  // the server closes the connection while the body is being sent
        }
      });
    }
    const auto patience = std::chrono::steady_clock::now() + 60s;
    while (refused + answering < 6 && std::chrono::steady_clock::now() < patience) std::this_thread::sleep_for(1ms);
    CHECK(refused + answering == 6);
    CHECK(answering >= 1);
    CHECK(answering <= 2);  // two bodies of 3 MiB fit into the limit
    CHECK(http::send(request(server, pair.certificate, "small")).status == 200);
    CHECK(server.is_answering());
    ends = true;
  }
  CHECK(refused >= 4);
  CHECK(most <= 3);
}

TEST_CASE("a large request waits for others, and idle connections stay open") {
  std::atomic<int> answering = 0;
  std::atomic<bool> ends = false;
  WebhookServer server(
      "127.0.0.1", 0,
      [&](const std::string&, const std::string& body) {
        ++answering;
        while (!ends && body.size() > 1000) std::this_thread::sleep_for(1ms);
        return WebhookServer::Answer{200, "{}"};
      },
      60s);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  http::Connections idle;
  REQUIRE(idle.send(request(server, pair.certificate, "x")).status == 200);
  answering = 0;
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&, what = request(server, pair.certificate, std::string(3 << 20, 'x'))] {
        answered += http::send(what).status == 200;
      });
    }
    while (answering < 2) std::this_thread::sleep_for(1ms);
    CHECK(idle.send(request(server, pair.certificate, "x")).status == 200);
    ends = true;
  }
  CHECK(answered == 3);
}

TEST_CASE("bodies that are announced but not sent do not block other requests" * doctest::test_suite("slow")) {
  WebhookServer server("127.0.0.1", 0, echo);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  std::atomic<bool> ends = false;
  std::atomic<int> began = 0;
  std::vector<std::jthread> silent;
  for (int i = 0; i < 2; ++i) {
    silent.emplace_back([&] {
      http::Request what = request(server, pair.certificate, "");
      what.read_size = 4 << 20;
      what.read_body = [&](char*, std::size_t) -> std::size_t {
        ++began;
        while (!ends) std::this_thread::sleep_for(1ms);
        throw Error("the client ends");
      };
      CHECK_THROWS_AS(http::send(what), Error);
    });
  }
  while (began < 2) std::this_thread::sleep_for(1ms);
  CHECK(http::send(request(server, pair.certificate, "small")).status == 200);
  ends = true;
}

TEST_CASE("a draining server answers requests and then closes their connections") {
  WebhookServer server("127.0.0.1", 0, echo);
  const ServingCertificate pair = make_certificate();
  server.serve(pair);
  http::Connections kept;
  CHECK(kept.send(request(server, pair.certificate, "x")).header("connection") != "close");
  server.drain();
  CHECK(kept.send(request(server, pair.certificate, "x")).header("connection") == "close");
  CHECK(kept.send(request(server, pair.certificate, "x")).status == 200);
}

TEST_CASE("a server can be destroyed while a request is being answered") {
  std::atomic<bool> entered = false, ends = false;
  std::jthread client;
  {
    WebhookServer server("127.0.0.1", 0, [&](const std::string&, const std::string&) {
      entered = true;
      while (!ends) std::this_thread::yield();
      return WebhookServer::Answer{};
    });
    const ServingCertificate pair = make_certificate();
    server.serve(pair);
    client = std::jthread([what = request(server, pair.certificate, "x")] {
      try {
        CHECK(http::send(what).status == 200);
      } catch (const Error&) {
        // The server closed the connection before it answered.
      }
    });
    while (!entered) std::this_thread::yield();
    ends = true;
  }
}

TEST_CASE("an invalid address of the webhook server is a usage error, and a port in use is an error") {
  CHECK_THROWS_AS(WebhookServer("localhost", 0, echo), UsageError);
  WebhookServer server("127.0.0.1", 0, echo);
  CHECK_THROWS_AS(WebhookServer("127.0.0.1", server.port(), echo), Error);
}

}  // namespace operator_validator_test
