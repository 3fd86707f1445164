// Tests files of AdaptDLJobs: what is accepted, and which file, line and field are reported otherwise.
#include "kube/jobs/job_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "adaptdl/error.h"
#include "golden.h"

namespace kube_job_file_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using nlohmann::json;

namespace {

// Returns the example job from the documentation with lines added to its parts.
std::string with(const std::string& spec = "", const std::string& container = "",
                 const std::string& metadata = "  generateName: hello-world-\n") {
  return "apiVersion: adaptdl.petuum.com/v1\nkind: AdaptDLJob\nmetadata:\n" + metadata + "spec:\n" + spec +
         "  template:\n    spec:\n      containers:\n      - name: main\n        image: hello\n" + container;
}

std::string refusal(const std::string& text, const JobFileNeeds& needs = {}) {
  try {
    parse_job_file(text, "job.yaml", needs);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a YAML job is parsed into the equivalent object") {
  const auto jobs = parse_job_file(with("  minReplicas: 1\n  maxReplicas: 4\n  preemptible: no\n",
                                        "        command: [python3, '/root/x.py', \"7\"]\n"),
                                   "job.yaml", {});
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0] == json::parse(R"({"apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob",
    "metadata": {"generateName": "hello-world-"},
    "spec": {"minReplicas": 1, "maxReplicas": 4, "preemptible": false, "template": {"spec": {"containers": [
      {"name": "main", "image": "hello", "command": ["python3", "/root/x.py", "7"]}]}}}})"));
}

TEST_CASE("a file may contain several jobs, empty documents, or JSON") {
  CHECK(parse_job_file("---\n" + with() + "---\n---\n" + with("  maxReplicas: 2\n"), "f", {}).size() == 2);
  json object = parse_job_file(with(), "f", {})[0];
  CHECK(parse_job_file(object.dump(2), "f", {})[0] == object);
  object["metadata"]["annotations"]["a"] = "\U0001f600\t";
  CHECK(parse_job_file(object.dump(1, '\t', true), "f", {})[0] == object);
}

TEST_CASE("fields set by the server are removed from an exported job") {
  const auto jobs = parse_job_file(
      with("", "status: {phase: Failed}\n", "  name: x\n  uid: u\n  resourceVersion: \"5\"\n  managedFields: []\n"),
      "f", {});
  CHECK(jobs[0]["metadata"] == json{{"name", "x"}});
  CHECK_FALSE(jobs[0].contains("status"));
}

TEST_CASE("each mistake is reported with its line and field") {
  const auto says = [](const std::string& text, const std::string& message) {
    CHECK(refusal(text) == "job.yaml:" + message);
  };
  says("- 1\n", "1: not an AdaptDLJob; expected apiVersion, kind, metadata and spec");
  says("kind: AdaptDLJob\n", "1: apiVersion is missing: expected adaptdl.petuum.com/v1");
  says("apiVersion: v1\nkind: Pod\n", "1: invalid apiVersion 'v1': expected adaptdl.petuum.com/v1");
  says("apiVersion: adaptdl.petuum.com/v1\nkind: Job\n",
       "2: invalid kind 'Job': expected AdaptDLJob; create other objects with kubectl");
  says(with() + "replicas: 3\n",
       "11: unknown field 'replicas' in an AdaptDLJob: expected one of apiVersion, kind, metadata, spec, status");
  says(with("  minReplica: 3\n"),
       "6: unknown field 'minReplica' in spec: expected one of template, minReplicas, maxReplicas, preemptible, "
       "suspend");
  says(with("  minReplicas: 5\n  maxReplicas: 4\n"),
       "6: spec.minReplicas (5) must not be greater than spec.maxReplicas (4)");
  says(with("  maxReplicas: 0\n"), "6: spec.maxReplicas must be an integer of at least 1, not 0");
  says(with("  minReplicas: two\n"), "6: spec.minReplicas must be an integer of at least 0, not \"two\"");
  says(with("  preemptible: 3\n"), "6: spec.preemptible must be true or false, not 3");
  says(with("  suspend: never\n"), "6: spec.suspend must be true or false, not \"never\"");
  says(with("", "", "  labels: {}\n"), "3: metadata has neither name nor generateName; add one, or use --name");
  says(with("", "", "  name: No_Name\n"),
       "4: metadata.name is 'No_Name', but must consist of at most 56 lowercase letters, digits and '-', beginning and "
       "ending "
       "with a letter or digit");
  says(with("", "", "  name: x\n  labels: {a: 1}\n"),
       "5: metadata.labels: the value of 'a' must be a string; put 1 in quotes");
  says(with("", "      - name: main\n        image: x\n"), "11: duplicate container name 'main'");
  says(with("", "      - name: side\n"),
       "11: spec.template.spec.containers[1] has no image; add one");
  says(with("", "        args: [1]\n"),
       "11: spec.template.spec.containers[0].args[0] must be a string; put 1 in quotes");
  says(with("", "        env:\n        - {name: N, value: 3}\n"),
       "12: spec.template.spec.containers[0].env[0].value must be a string; put 3 in quotes");
  says(with("", "        resources:\n          limits:\n            cpu: many\n"),
       "13: spec.template.spec.containers[0].resources.limits: cpu must be an amount such as 2, 500m or 4Gi, not "
       "\"many\"");
  says(with("", "      volumes:\n      - name: adaptdl-pvc\n"),
       "12: volume name 'adaptdl-pvc' is reserved for a volume that adaptdl adds; use another name");
  says(with("", "        volumeMounts:\n        - {name: x, mountPath: /adaptdl/share}\n"),
       "12: '/adaptdl/share' is reserved for a volume that adaptdl adds; use another mountPath");
}

TEST_CASE("a misindented template and a missing spec are reported with a hint") {
  const std::string text =
      "apiVersion: adaptdl.petuum.com/v1\nkind: AdaptDLJob\nmetadata:\n  generateName: x-\nspec:\n  template:\n  "
      "spec:\n"
      "    containers:\n    - name: main\n";
  CHECK_GOLDEN(refusal(text));
  CHECK_GOLDEN(refusal(with().substr(0, with().find("spec:"))));
}

TEST_CASE("in a file with several documents, errors name the document") {
  CHECK_GOLDEN(refusal(with() + "---\n" + with("  maxReplicas: no\n")));
  const std::string named = with("", "", "  name: x\n");
  CHECK_GOLDEN(refusal(named + "---\n" + named));
}

TEST_CASE("a name and an image may be omitted if they are supplied elsewhere") {
  std::string text = with("", "", "  labels: {}\n");
  text.erase(text.find("        image: hello\n"), 21);
  CHECK(refusal(text, {.name = false, .image = false}) == "");
  CHECK_GOLDEN(refusal(text, {.name = false, .image = true}));
}

TEST_CASE("invalid, ambiguous, oversized and deeply nested YAML is rejected" * doctest::test_suite("slow")) {
  CHECK(refusal("a: [\n").find("invalid YAML") != std::string::npos);
  for (const char* end : {",", "- a\n--- ,", "]", "}"})  // yaml-cpp would parse endless documents from some of these
    CHECK(refusal(end).find("invalid YAML") != std::string::npos);
  CHECK_GOLDEN(refusal("kind: A\nkind: B\n"));
  CHECK_GOLDEN(refusal(""));
  CHECK_GOLDEN(refusal("kind: \"\\_\"\n"));
  CHECK_GOLDEN(refusal("\xff"));
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i)
    bomb += fmt::format("a{0}: &a{0} [*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1}]\n", i, i - 1);
  CHECK_GOLDEN(refusal(bomb));
  CHECK_GOLDEN(refusal("a: &a [*a]\n"));
  CHECK_GOLDEN(refusal(std::string(65, '[') + std::string(65, ']')));
  for (const char* open : {"[", "{", "{a: ", "[{", "- ", "? ", "!a [", "&a [", "\"\": ["}) {
    CAPTURE(open);
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += open;
    CHECK(refusal(deep).starts_with("job.yaml:"));
    CHECK(refusal("spec: " + deep).starts_with("job.yaml:"));
  }
  CHECK_GOLDEN(refusal(std::string(5 << 20, ' ')));
}

}  // namespace kube_job_file_test
