// Tests which pod and port a port-forward connects to.
#include "kube/stream/forward_target.h"

#include <doctest/doctest.h>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"

namespace kube_forward_target_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using nlohmann::json;

namespace {

const json kPod = json::parse(R"({"metadata": {"name": "p"}, "spec": {"containers": [
  {"name": "a"}, {"name": "b", "ports": [{"containerPort": 6006}, {"name": "web", "containerPort": 8080}]}]}})");
const json kService = json::parse(R"({"metadata": {"name": "s"}, "spec": {
  "selector": {"app": "x", "tier": "y"},
  "ports": [{"port": 80, "targetPort": "web"}, {"name": "other", "port": 81, "targetPort": 6006}, {"port": 82}]}})");

json with_condition(const char* status) {
  json pod = kPod;
  pod["status"]["conditions"] = {{{"type", "Initialized"}, {"status", "True"}},
                                 {{"type", "Ready"}, {"status", status}}};
  return pod;
}

}  // namespace

TEST_CASE("a pod's port is given by number or name, and defaults to the first one") {
  CHECK(port_of_pod(kPod, "1234") == 1234);
  CHECK(port_of_pod(kPod, "web") == 8080);
  CHECK(port_of_pod(kPod, "") == 6006);
}

TEST_CASE("an unknown port of a pod is reported by name") {
  CHECK_GOLDEN(::testing::error_of([&] { port_of_pod(kPod, "nix"); }));
  CHECK_GOLDEN(::testing::error_of([&] { port_of_pod(kPod, "70000"); }));
  CHECK_THROWS_AS(port_of_pod(json{{"spec", {{"containers", 5}}}}, ""), Error);
}

TEST_CASE("a service's port, given by number or name, maps to its target port") {
  CHECK(target_port_of_service(kService, "") == "web");
  CHECK(target_port_of_service(kService, "80") == "web");
  CHECK(target_port_of_service(kService, "other") == "6006");
  CHECK(target_port_of_service(kService, "81") == "6006");
  CHECK(target_port_of_service(kService, "82") == "82");
  CHECK_GOLDEN(::testing::error_of([&] { target_port_of_service(kService, "83"); }));
}

TEST_CASE("a service's pods match its whole selector, and a service without a selector is rejected") {
  CHECK(selector_of_service(kService) == "app=x,tier=y");
  CHECK_THROWS_AS(selector_of_service(json{{"spec", json::object()}}), Error);
}

TEST_CASE("a pod is ready if its Ready condition is true and it is not being deleted") {
  CHECK(is_ready(with_condition("True")));
  CHECK_FALSE(is_ready(with_condition("False")));
  CHECK_FALSE(is_ready(kPod));
  json going = with_condition("True");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  CHECK_FALSE(is_ready(going));
}

}  // namespace kube_forward_target_test
