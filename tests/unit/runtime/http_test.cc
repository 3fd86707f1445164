// Tests the wrapper of libcurl against a real HTTP server in its own process.
#include "http/http.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>

#include "error_of.h"
#include "golden.h"
#include "http_support.h"

namespace http_test {

using namespace adaptdl;
using namespace std::chrono_literals;
using adaptdl::testing::Server;
using nlohmann::json;

namespace {

http::Request request_to(const Server& server, const std::string& method, const std::string& body = "") {
  http::Request request;
  request.method = method;
  request.url = server.url() + "/x";
  request.body = body;
  return request;
}

}  // namespace

TEST_CASE("a request sends its method, headers and body, and returns the status and body") {
  Server server({{200, "got"}, {204, ""}, {500, "broken"}, {200, "patched"}, {404, ""}});
  auto put = request_to(server, "PUT", std::string(40000, 'p'));
  put.headers = {"Authorization: Bearer t", "Content-Type: application/json"};
  const auto answer = http::send(put);
  CHECK(answer.status == 200);
  CHECK(answer.body == "got");
  CHECK(server.request() == json{"PUT", "/x", "Bearer t", put.body});
  CHECK(http::send(request_to(server, "PUT")).status == 204);
  CHECK(server.request() == json{"PUT", "/x", nullptr, ""});
  CHECK(http::send(request_to(server, "POST", "{}")).body == "broken");
  CHECK(server.request() == json{"POST", "/x", nullptr, "{}"});
  CHECK(http::send(request_to(server, "PATCH", "[]")).body == "patched");
  CHECK(server.request() == json{"PATCH", "/x", nullptr, "[]"});
  CHECK(http::send(request_to(server, "DELETE")).status == 404);
  CHECK(server.request() == json{"DELETE", "/x", nullptr, ""});
}

TEST_CASE("a response larger than max_body fails") {
  Server server({{200, "x", 0, 1000}, {200, "x", 0, 1001}});
  auto request = request_to(server, "GET");
  request.max_body = 1000;
  CHECK(http::send(request).body.size() == 1000);
  CHECK_THROWS_WITH_AS(http::send(request),
                       fmt::format("GET {}/x: the response is larger than 1000 bytes", server.url()).c_str(), Error);
}

TEST_CASE("a request to a slow server fails with a connection error after its timeout") {
  Server server({{200, "late", 30}});
  auto request = request_to(server, "GET");
  request.timeout = 200ms;
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(http::send(request), http::ConnectionError);
  CHECK(std::chrono::steady_clock::now() - start < 25s);
}

TEST_CASE("a proxy set in the environment is bypassed for loopback addresses") {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  Server server({{200, "direct"}});
  CHECK(http::send(request_to(server, "GET")).body == "direct");
  ::unsetenv("http_proxy");
}

TEST_CASE("escape percent-encodes a path segment") {
  CHECK(http::escape("a/b c?d\xc3\xa9") == "a%2Fb%20c%3Fd%C3%A9");
  CHECK(http::escape("") == "");
}

TEST_CASE("a request body is streamed from its reader, and the reader's exceptions propagate") {
  Server server({{201, ""}, {200, ""}});
  auto request = request_to(server, "PUT");
  const std::string body(50000, 'r');
  std::size_t at = 0;
  request.read_size = body.size();
  request.read_body = [&](char* data, std::size_t size) {
    const std::size_t count = std::min({size, body.size() - at, std::size_t{1000}});
    body.copy(data, count, at);
    at += count;
    return count;
  };
  http::Connections connections;
  CHECK(connections.send(request).status == 201);
  CHECK(server.request() == json{"PUT", "/x", nullptr, body});
  request.read_body = [](char*, std::size_t) -> std::size_t { throw Error("the disk is gone"); };
  CHECK_GOLDEN(::testing::error_of([&] { connections.send(request); }));
}

TEST_CASE("a stream reports its status and headers before the body, even if the body is empty") {
  Server server({{206, "part"}, {200, ""}, {404, "none"}});
  http::Connections connections;
  std::string seen;
  const auto take = [&](std::string_view data) {
    seen += data;
    return true;
  };
  const auto begin = [&](const http::Response& head) {
    seen += fmt::format("{} {}:", head.status, head.header("content-length"));
  };
  CHECK(connections.stream(request_to(server, "GET"), {}, take, begin).status == 206);
  CHECK(connections.stream(request_to(server, "GET"), {}, take, begin).status == 200);
  CHECK(seen == "206 4:part200 0:");
  CHECK(connections.stream(request_to(server, "GET"), {}, take, begin).body == "none");
  CHECK(seen == "206 4:part200 0:");
}

TEST_CASE("a stalled connection fails even without an overall timeout" * doctest::test_suite("slow")) {
  Server server({{200, "late", 30}});
  auto request = request_to(server, "GET");
  request.timeout = 0ms;
  request.stall = 1s;
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(http::send(request), http::ConnectionError);
  CHECK(std::chrono::steady_clock::now() - start < 25s);
}

}  // namespace http_test
