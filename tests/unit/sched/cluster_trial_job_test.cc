#include "cluster_tuner/trial_job.h"

#include <doctest/doctest.h>

#include <map>

#include "adaptdl/error.h"

namespace cluster_trial_job_test {

using namespace adaptdl;
using namespace adaptdl::sched::tune;
using nlohmann::json;

namespace {

TrialJobPlan plan() {
  TrialJobPlan plan;
  plan.study = "digits";
  plan.study_id = "x1y2z3";
  plan.job = json::parse(R"json({"apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob",
    "metadata": {"labels": {"team": "vision"}}, "spec": {"template": {"metadata": {"annotations": {"own": "1"}},
      "spec": {"containers": [{"name": "main", "image": "i", "command": ["sh"], "args": ["-c", "x"],
                               "env": [{"name": "A", "value": "$(B)"}]},
                              {"name": "side", "image": "s", "args": ["x"]}]}}}})json");
  plan.submission.name_space = "here";
  plan.submission.storage = kube::StorageChoice{"shared", "ReadWriteMany"};
  plan.command = {"train", "--lr", "{lr}", "--opt", "{opt}", "$HOME/$(A)"};
  return plan;
}

std::map<std::string, std::string> variables(const json& container) {
  std::map<std::string, std::string> found;
  for (const json& each : container["env"]) found[each["name"]] = each["value"];
  return found;
}

}  // namespace

TEST_CASE("the first container runs the program with the parameters, and other fields are kept") {
  const kube::Submission made = make_trial_job(plan(), 12, {{"lr", 0.5}, {"opt", "$adam"}});
  CHECK(made.name() == "digits-12");
  CHECK(made.name_space() == "here");
  CHECK(made.job["metadata"]["labels"] ==
        json::parse(
            R"({"team": "vision", "adaptdl/study": "digits", "adaptdl/study-id": "x1y2z3", "adaptdl/trial": "12"})"));
  const json& pod = made.job["spec"]["template"];
  const json& first = pod["spec"]["containers"][0];
  // Kubernetes replaces $$ with $, and $(NAME) with the value of a variable.
  CHECK(first["command"] == json{"train", "--lr", "0.5", "--opt", "$$adam", "$$HOME/$$(A)"});
  CHECK_FALSE(first.contains("args"));
  CHECK(first["image"] == "i");
  auto set = variables(first);
  CHECK(set["A"] == "$(B)");
  CHECK(set["ADAPTDL_PARAM_LR"] == "0.5");
  CHECK(set["ADAPTDL_PARAM_OPT"] == "$$adam");
  CHECK(set["ADAPTDL_RESULTS_FILE"] == "/dev/stdout");
  CHECK(set["PYTHONUNBUFFERED"] == "1");
  CHECK(set["ADAPTDL_CHECKPOINT_PATH"] == "/adaptdl/checkpoint");
  CHECK(pod["spec"]["containers"][1]["args"] == json{"x"});
  CHECK(pod["metadata"]["annotations"]["own"] == "1");
}

TEST_CASE("ADAPTDL_PARAMS_FILE names a file with all parameters") {
  const kube::Submission made = make_trial_job(plan(), 0, {{"lr", 0.5}, {"opt", "adam"}});
  const json& pod = made.job["spec"]["template"];
  CHECK(json::parse(pod["metadata"]["annotations"]["adaptdl/parameters"].get<std::string>()) ==
        json{{"lr", 0.5}, {"opt", "adam"}});
  const json& volume = pod["spec"]["volumes"].front();
  const json& item = volume["downwardAPI"]["items"][0];
  CHECK(item["fieldRef"]["fieldPath"] == "metadata.annotations['adaptdl/parameters']");
  const json& mount = pod["spec"]["containers"][0]["volumeMounts"].front();
  CHECK(mount["name"] == volume["name"]);
  CHECK(variables(pod["spec"]["containers"][0])["ADAPTDL_PARAMS_FILE"] ==
        mount["mountPath"].get<std::string>() + '/' + item["path"].get<std::string>());
}

TEST_CASE("the volume claim's name is stable and unique per trial and study") {
  const auto claim = [](const TrialJobPlan& plan, int number) {
    const kube::Submission made = make_trial_job(plan, number, {{"lr", 0.5}});
    CHECK(made.claim["metadata"]["name"] == kube::claim_of(made.job));
    CHECK(made.claim["metadata"]["labels"]["adaptdl/study-id"] == plan.study_id);
    return kube::claim_of(made.job);
  };
  TrialJobPlan other = plan();
  other.study_id = "other";
  CHECK(claim(plan(), 1) == claim(plan(), 1));
  CHECK(claim(plan(), 1) != claim(plan(), 11));
  CHECK(claim(plan(), 1) != claim(other, 1));
}

TEST_CASE("PYTHONUNBUFFERED set by the job file is kept") {
  TrialJobPlan own = plan();
  own.job["spec"]["template"]["spec"]["containers"][0]["env"].push_back({{"name", "PYTHONUNBUFFERED"}, {"value", ""}});
  const kube::Submission made = make_trial_job(own, 0, {{"lr", 0.5}});
  CHECK(variables(made.job["spec"]["template"]["spec"]["containers"][0])["PYTHONUNBUFFERED"].empty());
}

TEST_CASE("a trial's number is read from its label, and invalid labels are ignored") {
  const auto number = [](const json& value) { return trial_of({{"metadata", {{"labels", {{kTrialLabel, value}}}}}}); };
  CHECK(number("0") == 0);
  CHECK(number("12") == 12);
  for (const json& wrong : {json("-1"), json("1x"), json(""), json(1), json("99999999999")}) CHECK_FALSE(number(wrong));
  CHECK_FALSE(trial_of(json::object()));
}

TEST_CASE("a study name that is not a valid job name prefix is rejected") {
  for (const char* const name : {"digits", "a", "7b-c"}) CHECK_NOTHROW(check_job_names(name));
  for (const char* const name : {"A", "a_b", "a.b", "-a"}) CHECK_THROWS_AS(check_job_names(name), UsageError);
  CHECK_THROWS_AS(check_job_names(std::string(60, 'a')), UsageError);
}

}  // namespace cluster_trial_job_test
