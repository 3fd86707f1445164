// Tests parsing of errors from API servers.
#include "kube/api/error.h"

#include <doctest/doctest.h>

namespace kube_error_test {

using namespace adaptdl::kube;
using std::chrono::seconds;

TEST_CASE("a Status object is parsed into its message, reason and details") {
  const Status status = parse_status(404, R"({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
      "message": "pods \"x\" not found", "reason": "NotFound", "details": {"name": "x", "kind": "pods"}, "code": 404})");
  CHECK(status.message == "pods \"x\" not found");
  CHECK(status.reason == "NotFound");
  CHECK(status.details["name"] == "x");
  CHECK_FALSE(status.retry_after);
}

TEST_CASE("the retry delay of a Status is read from its details, limited to an hour, and ignored if invalid") {
  const auto retry = [](const char* value) {
    return parse_status(429, std::string(R"({"kind": "Status", "details": {"retryAfterSeconds": )") + value + "}}")
        .retry_after;
  };
  CHECK(retry("7") == seconds(7));
  CHECK(retry("9223372036854775807") == seconds(3600));
  CHECK_FALSE(retry("0"));
  CHECK_FALSE(retry("-1"));
  CHECK_FALSE(retry("\"7\""));
}

TEST_CASE("a message with line breaks and escape codes is reduced to one plain line") {
  const Status status = parse_status(400, R"({"kind": "Status", "message": "a\nb\r\n\u001b[31mc\t d\n"})");
  CHECK(status.message == "a b [31mc d");
}

TEST_CASE("a Status without a message is described by its reason, or else by its HTTP code") {
  CHECK(parse_status(403, R"({"kind": "Status", "reason": "Forbidden"})").message == "Forbidden");
  CHECK(parse_status(403, R"({"kind": "Status"})").message == "HTTP 403 Forbidden");
  CHECK(parse_status(599, "").message == "HTTP 599");
}

TEST_CASE("a response that is not a Status is described by its text or its HTTP code") {
  CHECK(parse_status(404, "404 page not found\n").message == "404 page not found");
  CHECK(parse_status(401, "Unauthorized").message == "HTTP 401 Unauthorized");
  CHECK(parse_status(502, "<!DOCTYPE html><HTML><head><title>Bad\n Gateway</title></head></HTML>").message ==
        "HTTP 502 Bad Gateway with a web page ('Bad Gateway'); this is not an API server");
  CHECK(parse_status(500, R"({"error": "no"})").message == R"({"error": "no"})");
  CHECK(parse_status(500, "[1, 2").message == "[1, 2");
}

TEST_CASE("Status fields of the wrong type are ignored") {
  const Status status = parse_status(500, R"({"kind": "Status", "message": 1, "reason": [], "details": "x"})");
  CHECK(status.message == "HTTP 500 Internal Server Error");
  CHECK(status.reason.empty());
  CHECK(status.details.is_null());
}

TEST_CASE("deep nesting and invalid UTF-8 in a response are tolerated, and long messages are truncated") {
  const std::string deep(100000, '[');
  const Status nested = parse_status(
      500, R"({"kind": "Status", "message": "m", "details": {"a": )" + deep + std::string(100000, ']') + "}}");
  CHECK(nested.message.starts_with("{\"kind\""));
  CHECK(nested.message.size() <= 2000);
  CHECK(nested.details.is_null());
  CHECK(parse_status(500, deep).message.size() <= 2000);
  CHECK(parse_status(500, "a\xff\xc3").message == "a");
  CHECK(parse_status(500, "{\"kind\": \"Status\", \"message\": \"" + std::string(100000, 'm') + "\"}").message.size() <=
        2000);
}

}  // namespace kube_error_test
