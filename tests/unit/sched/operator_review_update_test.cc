// Tests which changes of AdaptDLJobs the validator accepts, and that a job's submitter cannot be changed.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "kube/jobs/usage_ledger.h"
#include "operator/validator/job_review.h"
#include "operator_review_support.h"

namespace operator_review_update_test {

using namespace adaptdl;
using namespace adaptdl::sched;
using nlohmann::json;
using operator_review_support::creation;
using operator_review_support::make_job;
using operator_review_support::Server;
using operator_review_support::update;

TEST_CASE("the spec of a job can be changed only until the job starts") {
  Server server;
  json before = make_job(), after = make_job();
  after["spec"]["template"]["spec"]["containers"][0]["image"] = "better";
  // The new spec is checked like that of a new job.
  CHECK(review_job(update(before, after), server.settings()).faults.empty());
  CHECK(server.pods.size() == 1);
  before["status"] = {{"phase", "Pending"}};
  CHECK(review_job(update(before, after), server.settings()).faults.empty());
  json wrong = after;
  wrong["spec"]["minReplicas"] = 9;
  CHECK(review_job(update(before, wrong), server.settings()).faults.size() == 1);

  const std::vector<std::string> refused{
      "spec.template.spec.containers[0].image cannot be changed after the job has started; submit a new job instead"};
  for (const char* phase : {"Starting", "Running", "Stopping", "Pending", "Succeeded"}) {
    before["status"] = {{"phase", phase}, {"group", 0}};
    CHECK(review_job(update(before, after), server.settings()).faults == refused);
  }
  before["status"] = {{"phase", "Failed"}, {"reason", "Unschedulable"}};
  CHECK(review_job(update(before, after), server.settings()).faults == refused);
  after = make_job();
  after["spec"]["maxReplicas"] = 8;
  before["status"] = {{"phase", "Running"}, {"group", 3}};
  CHECK(review_job(update(before, after), server.settings()).faults.at(0).starts_with("spec.maxReplicas cannot"));
  after["spec"]["maxReplicas"] = 4;
  after["spec"]["template"]["spec"]["nodeSelector"] = {{"kubernetes.io/arch", "amd64"}};
  before["spec"]["template"]["spec"]["nodeSelector"] = {{"kubernetes.io/arch", "arm64"}};
  CHECK(review_job(update(before, after), server.settings())
            .faults.at(0)
            .starts_with("spec.template.spec.nodeSelector.kubernetes.io/arch cannot"));
  before["spec"]["template"]["spec"]["containers"][0]["env"] = {{{"name", "A"}, {"value", "1"}}};
  after = before;
  after["spec"]["template"]["spec"]["containers"][0]["env"].push_back({{"name", "B"}, {"value", "2"}});
  CHECK(review_job(update(before, after), server.settings())
            .faults.at(0)
            .starts_with("spec.template.spec.containers[0].env cannot"));
  after = before;
  after["spec"].erase("maxReplicas");
  CHECK(review_job(update(before, after), server.settings()).faults.at(0).starts_with("spec.maxReplicas cannot"));
}

TEST_CASE("a job can be suspended and resumed in any phase without another check of its spec") {
  Server server;
  server.refuse(422, "Pod is invalid");
  for (const char* phase : {"Pending", "Running", "Stopping", "Suspended", "Succeeded", "Failed"}) {
    CAPTURE(phase);
    json before = make_job();
    before["status"] = {{"phase", phase}, {"group", 0}};
    json suspended = before;
    suspended["spec"]["suspend"] = true;
    json resumed = before;
    resumed["spec"]["suspend"] = false;
    for (const auto& [from, to] : {std::pair(before, suspended), std::pair(suspended, resumed),
                                   std::pair(resumed, suspended), std::pair(suspended, before)}) {
      const ReviewVerdict verdict = review_job(update(from, to), server.settings());
      CHECK(verdict.faults.empty());
      CHECK(verdict.warnings.empty());
    }
    // All other fields remain immutable, even while the job is suspended.
    for (json* job : {&suspended, &resumed}) {
      json after = *job;
      after["spec"]["maxReplicas"] = 8;
      for (const json& from : {before, suspended}) {
        CHECK(review_job(update(from, after), server.settings()).faults ==
              std::vector<std::string>{
                  "spec.maxReplicas cannot be changed after the job has started; submit a new job instead"});
      }
    }
  }
  CHECK(server.pods.empty());
}

TEST_CASE("a new suspended job is checked, and so are changes before it starts") {
  Server server;
  json job = make_job();
  job["spec"]["suspend"] = true;
  CHECK(review_job(creation(job), server.settings()).faults.empty());
  CHECK(server.pods.size() == 1);
  json after = job;
  after["spec"]["minReplicas"] = 5;
  after["spec"]["suspend"] = false;
  job["status"] = {{"phase", "Suspended"}};
  CHECK(review_job(update(job, after), server.settings()).faults.size() == 1);
  after["spec"]["minReplicas"] = 2;
  CHECK(review_job(update(job, after), server.settings()).faults.empty());
}

TEST_CASE("the metadata of a running job can be changed even if its spec is invalid") {
  Server server;
  server.refuse(422, "Pod is invalid");
  json before = make_job();
  before["spec"]["minReplicas"] = 9;
  before["status"] = {{"phase", "Running"}, {"group", 0}};
  json after = before;
  after["metadata"]["labels"]["new"] = "label";
  after["metadata"]["finalizers"] = json::array();
  after["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z";
  CHECK(review_job(update(before, after), server.settings()).faults.empty());
  CHECK(server.pods.empty());
}

TEST_CASE("the submitter is recorded in an annotation that other users cannot change") {
  const char* const name = kube::kSubmitterAnnotation;
  json job = make_job(), request = creation(job);
  request["userInfo"] = {{"username", "alice"}, {"groups", {"a"}}};
  const auto patched = [](const json& of) { return of["object"].patch(submitter_patch(of)); };
  CHECK(patched(request)["metadata"]["annotations"] == json{{name, "alice"}});
  request["object"]["metadata"]["annotations"] = {{"other", "x"}};
  CHECK(patched(request)["metadata"]["annotations"] == json{{"other", "x"}, {name, "alice"}});
  request["object"]["metadata"]["annotations"][name] = "bob";
  CHECK(patched(request)["metadata"]["annotations"][name] == "alice");
  const json stored = patched(request);
  // Another user updates the job.
  json after = stored;
  request = update(stored, after);
  request["userInfo"] = {{"username", "bob"}};
  CHECK(submitter_patch(request).empty());
  request["object"]["metadata"]["annotations"][name] = "bob";
  CHECK(patched(request) == stored);
  request["object"]["metadata"].erase("annotations");
  CHECK(patched(request)["metadata"]["annotations"] == json{{name, "alice"}});
  // The job was created while no operator was responding.
  request = update(job, stored);
  CHECK_FALSE(patched(request)["metadata"]["annotations"].contains(name));

  const json answer = patch_answer(creation(job), json::array({{{"op", "remove"}, {"path", "/a"}}}))["response"];
  CHECK(answer["uid"] == "r");
  CHECK(answer["allowed"] == true);
  CHECK(answer["patchType"] == "JSONPatch");
  CHECK(decode_base64(answer["patch"].get<std::string>()) == R"([{"op":"remove","path":"/a"}])");
  CHECK_FALSE(patch_answer(creation(job), json::array())["response"].contains("patch"));
}

}  // namespace operator_review_update_test
