#include "cluster_tuner/trial_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "kube/api/names.h"
#include "tune/study/command_template.h"

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

constexpr char kParametersAnnotation[] = "adaptdl/parameters";
constexpr char kParametersVolume[] = "adaptdl-parameters";
constexpr char kParametersDirectory[] = "/adaptdl/trial";
constexpr char kParametersFile[] = "params.json";

// Escapes text for commands and variables, where Kubernetes expands $(NAME) and replaces $$ with $.
std::string literal(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped.append(c == '$' ? 2 : 1, c);
  return escaped;
}

void append(json& object, const char* list, json&& item) {
  json& items = object[list];
  if (!items.is_array()) items = json::array();
  items.push_back(std::move(item));
}

bool has_variable(const json& container, const std::string& name) {
  return std::ranges::any_of(kube::array_field(container, {"env"}),
                             [&](const json& each) { return kube::text_field(each, {"name"}) == name; });
}

void set_variable(json& container, const std::string& name, const std::string& value) {
  append(container, "env", {{"name", name}, {"value", value}});
}

void add_parameters(json& pod_template, const Values& values) {
  json& annotations = pod_template["metadata"]["annotations"];
  annotations[kParametersAnnotation] = json(values).dump();
  json& pod = pod_template["spec"];
  const std::string field = fmt::format("metadata.annotations['{}']", kParametersAnnotation);
  json item{{"path", kParametersFile}, {"fieldRef", {{"fieldPath", field}}}};
  append(pod, "volumes",
         {{"name", kParametersVolume}, {"downwardAPI", {{"items", json::array({std::move(item)})}}}});
  json& container = pod["containers"][0];
  append(container, "volumeMounts",
         {{"name", kParametersVolume}, {"mountPath", kParametersDirectory}, {"readOnly", true}});
  for (const auto& [name, value] : parameter_variables(values)) set_variable(container, name, literal(value));
  set_variable(container, "ADAPTDL_PARAMS_FILE", fmt::format("{}/{}", kParametersDirectory, kParametersFile));
}

void set_program(json& container, const std::vector<std::string>& command) {
  json words = json::array();
  for (const std::string& word : command) words.push_back(literal(word));
  container["command"] = std::move(words);
  container.erase("args");
}

}  // namespace

std::string trial_job_name(const std::string& study, int number) { return fmt::format("{}-{}", study, number); }

std::optional<int> trial_of(const json& job) {
  const std::string text = kube::text_field(job, {"metadata", "labels", kTrialLabel});
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

std::string trial_selector(const std::string& study_id) { return fmt::format("{}={}", kStudyIdLabel, study_id); }

void check_job_names(const std::string& study) {
  if (const std::string why = kube::not_a_job_prefix(study + '-'); !why.empty())
    throw UsageError(
        fmt::format("tune: invalid study name '{}' for cluster jobs: the prefix of the jobs' names {}", study, why));
}

kube::Submission make_trial_job(const TrialJobPlan& plan, int number, const Values& values) {
  json job = plan.job;
  job["metadata"]["name"] = trial_job_name(plan.study, number);
  job["metadata"]["labels"][kStudyLabel] = plan.study;
  job["metadata"]["labels"][kStudyIdLabel] = plan.study_id;
  job["metadata"]["labels"][kTrialLabel] = std::to_string(number);
  json& pod_template = job["spec"]["template"];
  json& container = pod_template["spec"]["containers"][0];
  set_program(container, make_command(plan.command, values));
  set_variable(container, "ADAPTDL_RESULTS_FILE", "/dev/stdout");
  // Without this variable, Python would buffer its output.
  if (!has_variable(container, "PYTHONUNBUFFERED")) set_variable(container, "PYTHONUNBUFFERED", "1");
  add_parameters(pod_template, values);
  kube::SubmissionOptions options = plan.submission;
  options.name.clear();
  options.arguments.clear();
  options.claim = fmt::format("adaptdl-pvc-{}-{}", plan.study_id, number);
  kube::Submission made = kube::make_submission(std::move(job), options);
  made.claim["metadata"]["labels"][kStudyIdLabel] = plan.study_id;
  return made;
}

}  // namespace adaptdl::sched::tune
