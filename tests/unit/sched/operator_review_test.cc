// Tests which AdaptDLJobs the validator rejects, and with which messages.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "kube/api/error.h"
#include "kube/api/json_fields.h"
#include "operator/validator/job_review.h"
#include "operator_review_support.h"

namespace operator_review_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using kube::ApiError;
using kube::text_field;
using nlohmann::json;
using operator_review_support::creation;
using operator_review_support::make_job;
using operator_review_support::Server;
using operator_review_support::update;

TEST_CASE("a valid job is accepted after a dry run of the creation of its pod") {
  Server server;
  const json request = creation(make_job());
  const ReviewVerdict verdict = review_job(request, server.settings());
  CHECK(verdict.faults.empty());
  CHECK(verdict.warnings.empty());
  REQUIRE(server.pods.size() == 1);
  CHECK(text_field(server.pods[0], {"kind"}) == "Pod");
  CHECK(text_field(server.pods[0], {"spec", "restartPolicy"}) == "Never");
  const json answer = review_answer(request, verdict);
  CHECK(answer["apiVersion"] == "admission.k8s.io/v1");
  CHECK(answer["kind"] == "AdmissionReview");
  CHECK(answer["response"] == json{{"uid", "r"}, {"allowed", true}});
}

TEST_CASE("a job with generateName is checked before its name is generated") {
  Server server;
  json job = make_job();
  job["metadata"] = {{"generateName", "job-"}};
  CHECK(review_job(creation(job), server.settings()).faults.empty());
  CHECK(text_field(server.pods.at(0), {"metadata", "namespace"}) == "ns");
  CHECK(text_field(server.pods.at(0), {"metadata", "name"}).starts_with("job-"));
}

TEST_CASE("all faults of a job are reported with their fields") {
  Server server;
  server.refuse(422, "Pod is invalid",
                {{"causes",
                  {{{"field", "spec.containers[0].name"}, {"message", "Required value"}},
                   {{"field", "metadata.labels"}, {"message", "Invalid value"}}}}});
  json job = make_job();
  job["spec"]["minReplicas"] = 5;
  job["spec"]["template"]["spec"]["containers"][0]["image"] = "BAD";
  job["spec"]["template"]["spec"]["initContainers"] = {{{"name", "first"}, {"image", "BAD"}}};
  const json request = creation(job);
  const ReviewVerdict verdict = review_job(request, server.settings());
  CHECK(verdict.faults == std::vector<std::string>{
                              "spec.minReplicas (5) must not be greater than spec.maxReplicas (4)",
                              "spec.template.spec.initContainers[0]: image 'BAD': wrong",
                              "spec.template.spec.containers[0]: image 'BAD': wrong",
                              "spec.template.spec.containers[0].name: Required value",
                              "spec.template.metadata.labels: Invalid value",
                          });
  const json response = review_answer(request, verdict)["response"];
  CHECK(response["allowed"] == false);
  CHECK(response["status"]["code"] == 403);
  CHECK(response["status"]["reason"] == "Forbidden");
  CHECK(text_field(response, {"status", "message"}).starts_with("spec.minReplicas (5) must not be greater than"));
  CHECK(text_field(response, {"status", "message"}).ends_with("; spec.template.metadata.labels: Invalid value"));
}

TEST_CASE("equal minReplicas and maxReplicas, or only one of them, are valid") {
  Server server;
  json job = make_job();
  job["spec"]["minReplicas"] = 4;
  CHECK(review_job(creation(job), server.settings()).faults.empty());
  job["spec"].erase("maxReplicas");
  CHECK(review_job(creation(job), server.settings()).faults.empty());
  job["spec"].erase("minReplicas");
  job["spec"]["maxReplicas"] = 1;
  CHECK(review_job(creation(job), server.settings()).faults.empty());
}

TEST_CASE("fields that the API server drops are reported as unknown") {
  Server server;
  server.store = [](json& pod) {
    pod["spec"]["containers"][0].erase("imag");
    pod["spec"].erase("nodeSelectors");
    pod["spec"]["containers"][0].erase("tty");
  };
  json job = make_job();
  json& pod = job["spec"]["template"]["spec"];
  pod["containers"][0]["imag"] = "good";
  pod["containers"][0]["tty"] = false;  // Kubernetes omits it, because it is the default
  pod["nodeSelectors"] = {{"a", "b"}};
  CHECK(review_job(creation(job), server.settings()).faults ==
        std::vector<std::string>{"spec.template.spec.containers[0].imag: unknown field",
                                 "spec.template.spec.nodeSelectors: unknown field"});
  ReviewSettings settings = server.settings();
  settings.compare_fields = false;
  CHECK(review_job(creation(job), settings).faults.empty());
}

TEST_CASE("changes by the operator's patches and by other webhooks are not reported as faults") {
  Server server;
  ReviewSettings settings = server.settings();
  settings.pods.container_patch = {{"tty", nullptr}};
  settings.pods.pod_patch = {{"spec", {{"unknown", "by the patch"}}}};
  server.store = [](json& pod) {
    pod["spec"].erase("unknown");
    json& containers = pod["spec"]["containers"];
    containers.insert(containers.begin(), {{"name", "sidecar"}, {"image", "other"}});
  };
  json job = make_job();
  job["spec"]["template"]["spec"]["containers"][0]["tty"] = true;
  job["spec"]["template"]["spec"]["containers"][0]["env"] = {{{"name", "A"}, {"value", "1"}}};
  CHECK(review_job(creation(job), settings).faults.empty());
}

TEST_CASE("a list element of a job is compared with its counterpart in the response") {
  Server server;
  server.store = [](json& pod) {
    json& spec = pod["spec"];
    spec["containers"][0]["volumeMounts"][1].erase("readonly");
    spec["tolerations"][0].erase("operater");
    spec["tolerations"].push_back({{"key", "added"}, {"operator", "Exists"}});
  };
  json job = make_job();
  json& spec = job["spec"]["template"]["spec"];
  spec["containers"][0]["volumeMounts"] = {{{"name", "v"}, {"mountPath", "/a"}},
                                           {{"name", "v"}, {"mountPath", "/b"}, {"readonly", true}}};
  spec["tolerations"] = {{{"key", "k"}, {"operater", "Exists"}}};
  CHECK(review_job(creation(job), server.settings()).faults ==
        std::vector<std::string>{"spec.template.spec.containers[0].volumeMounts[1].readonly: unknown field",
                                 "spec.template.spec.tolerations[0].operater: unknown field"});
}

TEST_CASE("unknown fields in the API server's error are reported as fields of the job") {
  Server server;
  server.refuse(400, R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field )"
                     R"("spec.containers[0].imag", unknown field "spec.x")");
  CHECK(review_job(creation(make_job()), server.settings()).faults ==
        std::vector<std::string>{"spec.template.spec.containers[0].imag: unknown field",
                                 "spec.template.spec.x: unknown field"});
}

TEST_CASE("a name too long for replicas' host names is reported for metadata.name") {
  Server server;
  server.refuse(422, "Pod is invalid",
                {{"causes", {{{"field", "spec.hostname"}, {"message", "must be no more than 63 characters"}}}}});
  CHECK(review_job(creation(make_job()), server.settings()).faults ==
        std::vector<std::string>{"metadata.name: must be no more than 63 characters"});
  // The checked host name is that of a later group, because such names are longer.
  CHECK(text_field(server.pods.at(0), {"spec", "hostname"}) == "job-999-0");
}

TEST_CASE("the template is not checked if another webhook does not support dry runs") {
  Server server;
  server.refuse(400, "admission webhook \"other.example.com\" does not support dry run");
  json job = make_job();
  const ReviewVerdict verdict = review_job(creation(job), server.settings());
  CHECK(verdict.faults.empty());
  CHECK(verdict.warnings.size() == 1);
  job["spec"]["minReplicas"] = 5;
  CHECK(review_job(creation(job), server.settings()).faults.size() == 1);
}

TEST_CASE("an operator patch that cannot be applied to the job is reported") {
  Server server;
  ReviewSettings settings = server.settings();
  settings.pods.pod_patch = json::array({{{"op", "remove"}, {"path", "/spec/missing"}}});
  const ReviewVerdict verdict = review_job(creation(make_job()), settings);
  REQUIRE(verdict.faults.size() == 1);
  CHECK(verdict.faults[0].starts_with("cannot apply the operator's pod patch"));
}

TEST_CASE("temporary problems with a job's pods are warnings, not faults") {
  Server server;
  for (const char* message : {"pods \"x\" is forbidden: exceeded quota: q, requested: cpu=4",
                              "pods \"x\" is forbidden: error looking up service account ns/later: not found"}) {
    server.refuse(403, message);
    const json request = creation(make_job());
    const ReviewVerdict verdict = review_job(request, server.settings());
    CHECK(verdict.faults.empty());
    REQUIRE(verdict.warnings.size() == 1);
    const json response = review_answer(request, verdict)["response"];
    CHECK(response["allowed"] == true);
    CHECK(response["warnings"].size() == 1);
    CHECK(response["warnings"][0] == std::string("the job must wait: ") + message);
  }
  server.refuse(403, "pods \"x\" is forbidden: violates PodSecurity \"restricted\"");
  CHECK(
      review_job(creation(make_job()), server.settings()).faults ==
      std::vector<std::string>{"the pods of this job would be rejected: pods \"x\" is forbidden: violates PodSecurity "
                               "\"restricted\""});
}

TEST_CASE("a job that cannot be checked causes an error instead of a verdict") {
  Server server;
  server.refuse(403, "pods is forbidden: User \"x\" cannot create resource \"pods\"");
  CHECK_THROWS_AS(review_job(creation(make_job()), server.settings()), ApiError);
  server.refuse(503, "etcd is gone");
  CHECK_THROWS_AS(review_job(creation(make_job()), server.settings()), ApiError);
  server.store = [](json&) { throw Error("connection refused"); };
  CHECK_THROWS_AS(review_job(creation(make_job()), server.settings()), Error);
}

TEST_CASE("messages from a hostile API server are printable and short") {
  Server server;
  server.refuse(422, "bad\x1b[2J\n" + std::string(5000, 'x'));
  const json request = creation(make_job());
  const json answer = review_answer(request, review_job(request, server.settings()));
  const std::string message = text_field(answer, {"response", "status", "message"});
  CHECK(message.size() <= 1000);
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
  ReviewVerdict many;
  many.faults.assign(500, "a fault");
  const json all = review_answer(request, many);
  CHECK(text_field(all, {"response", "status", "message"}).ends_with("; a fault; 490 more"));
}

TEST_CASE("checking malformed objects does not throw") {
  Server server;
  for (const char* text :
       {R"({"spec":null})", R"({"spec":{"template":[]}})", R"({"metadata":3,"spec":{"template":{}}})",
        R"({"spec":{"template":{"metadata":[],"spec":{"containers":[1,null,{"image":{}}]}}}})",
        R"({"spec":{"minReplicas":"x","maxReplicas":1e300}})"}) {
    json request = creation(json::parse(text));
    CHECK_NOTHROW(review_answer(request, review_job(request, server.settings())));
    request = update(json::parse(text), make_job());
    CHECK_NOTHROW(review_answer(request, review_job(request, server.settings())));
  }
}

TEST_CASE("an oversized or too deeply nested review is rejected, but its uid is still read" *
          doctest::test_suite("slow")) {
  const std::string deep = std::string(9000, '[') + std::string(9000, ']');
  std::string many = "1";
  for (int i = 0; i < 300'000; ++i) many += ",1";
  CHECK(reading_fault(R"({"request":{"uid":"u"}})").empty());
  for (const std::string& value : {deep, '[' + many + ']'}) {
    const std::string review = R"({"kind":"AdmissionReview","uid":"a","request":{"kind":{"uid":"b"},"options":["uid"],)"
                               R"("uid":"right","object":{"uid":"c","spec":)" +
                               value + "}}}";
    CHECK_FALSE(reading_fault(review).empty());
    CHECK(summarize_review(review).uid == "right");
    CHECK_FALSE(summarize_review(review).being_deleted);
    CHECK(summarize_review(R"({"request":{"object":)" + value + R"(,"uid":"last"}})").uid == "last");
    CHECK(summarize_review(R"({"request":{"object":)" + value + "}}").uid.empty());
    // This is the update with which the garbage collector removes a finalizer.
    const auto deletion = [&](const char* operation, const char* part) {
      return summarize_review(fmt::format(R"({{"request":{{"uid":"u","operation":"{}","object":{{"spec":{},"{}":{{)"
                                          R"("deletionTimestamp":"2026-11-26T00:00:00Z"}}}}}}}})",
                                          operation, value, part));
    };
    CHECK(deletion("UPDATE", "metadata").being_deleted);
    CHECK_FALSE(deletion("CREATE", "metadata").being_deleted);
    CHECK_FALSE(deletion("UPDATE", "spec").being_deleted);
  }
  for (const char* text : {"", "[", "{\"request\":[\"uid\"]}", R"({"request":{"uid":1}})", R"({"request":{"uid")"})
    CHECK(summarize_review(text).uid.empty());
}

}  // namespace operator_review_test
