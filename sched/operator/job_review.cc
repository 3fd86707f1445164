#include "operator/job_review.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "kube/job.h"
#include "kube/json_fields.h"
#include "operator/create_error.h"
#include "printable.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr const char* kTemplate = "spec.template.";
constexpr std::size_t kMaxFault = 1000, kMaxWarning = 250;  // bytes
constexpr std::size_t kMaxFaults = 10;

bool is_empty(const json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == "" || value == false || value == 0;
}

std::string join(const std::string& path, const std::string& key) { return path.empty() ? key : path + '.' + key; }

// Returns the element of `list` that corresponds to `sent`: the one of the same name, else that at the same place if
// both lists have the same length. Webhooks of others may insert elements.
const json* counterpart(const json& sent, std::size_t place, std::size_t count, const json& list) {
  if (const std::string name = text_field(sent, {"name"}); !name.empty()) {
    for (const json& element : list) {
      if (text_field(element, {"name"}) == name) return &element;
    }
  }
  return list.size() == count ? &list[place] : nullptr;
}

void collect_dropped(const json& sent, const json& stored, const std::string& path, std::vector<std::string>& dropped) {
  if (sent.is_object() && stored.is_object()) {
    for (const auto& [key, value] : sent.items()) {
      if (is_empty(value)) continue;
      if (const auto kept = stored.find(key); kept != stored.end()) {
        collect_dropped(value, *kept, join(path, key), dropped);
      } else {
        dropped.push_back(join(path, key));
      }
    }
  } else if (sent.is_array() && stored.is_array()) {
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (const json* kept = counterpart(sent[i], i, sent.size(), stored))
        collect_dropped(sent[i], *kept, fmt::format("{}[{}]", path, i), dropped);
    }
  }
}

// The job as it would be stored, with what a pod of it needs.
json complete_job(const json& request) {
  json job = field(request, {"object"});
  json& metadata = job["metadata"];
  if (!metadata.is_object()) metadata = json::object();
  if (text_field(job, {"metadata", "namespace"}).empty()) metadata["namespace"] = text_field(request, {"namespace"});
  if (kube::name_of(job).empty()) metadata["name"] = text_field(job, {"metadata", "generateName"}) + "xxxxx";
  if (text_field(job, {"metadata", "uid"}).empty()) metadata["uid"] = "00000000-0000-0000-0000-000000000000";
  return job;
}

void review_replicas(const json& job, ReviewVerdict& verdict) {
  const kube::Job parsed = kube::parse_job(job);
  if (!parsed.min_replicas || !parsed.max_replicas || *parsed.min_replicas <= *parsed.max_replicas) return;
  verdict.faults.push_back(fmt::format("spec.minReplicas is {}, which is more than spec.maxReplicas, {}",
                                       *parsed.min_replicas, *parsed.max_replicas));
}

void review_images(const json& job, const ReviewSettings& settings, ReviewVerdict& verdict) {
  for (const char* list : {"initContainers", "containers"}) {
    const auto& containers = array_field(job, {"spec", "template", "spec", list});
    for (std::size_t i = 0; i < containers.size(); ++i) {
      const std::string image = text_field(containers[i], {"image"});
      if (image.empty()) continue;  // found by the dry run
      if (const std::string fault = settings.image_fault(image); !fault.empty())
        verdict.faults.push_back(fmt::format("{}spec.{}[{}]: {}", kTemplate, list, i, fault));
    }
  }
}

// Adds what the API server says about the pod, by the fields of the job.
void add_pod_faults(const kube::ApiError& error, ReviewVerdict& verdict) {
  const auto& causes = array_field(error.details(), {"causes"});
  for (const json& cause : causes) {
    const std::string at = text_field(cause, {"field"}), why = text_field(cause, {"message"});
    verdict.faults.push_back(at.starts_with("spec.") || at.starts_with("metadata.") ? kTemplate + at + ": " + why
                             : at.empty()                                           ? why
                                                                                    : at + ": " + why);
  }
  if (causes.empty()) verdict.faults.push_back(fmt::format("the pods of this job: {}", error.server_message()));
}

void review_pod(const json& job, const ReviewSettings& settings, ReviewVerdict& verdict) {
  json pod;
  try {
    pod = make_replica_pod(job, {}, settings.pods);
  } catch (const Error& error) {  // a patch of the operator does not fit the template
    verdict.faults.emplace_back(error.what());
    return;
  }
  try {
    const json stored = settings.dry_run(text_field(job, {"metadata", "namespace"}), pod);
    if (!settings.compare_fields) return;
    // What patches of the operator have removed was not dropped by the API server.
    const json& given = field(job, {"spec", "template"});
    const std::vector<std::string> removed = dropped_fields(given, pod);
    for (const std::string& path : dropped_fields(given, stored)) {
      if (std::ranges::find(removed, path) == removed.end())
        verdict.faults.push_back(fmt::format("{}{}: unknown field", kTemplate, path));
    }
  } catch (const kube::ApiError& error) {
    switch (create_error(error)) {
      case CreateError::kInvalid:
        return add_pod_faults(error, verdict);
      case CreateError::kQuota:
      case CreateError::kNotReady:
        verdict.warnings.push_back("the job must wait: " + error.server_message());
        return;
      case CreateError::kPermission:
      case CreateError::kOther:
        throw;
    }
  }
}

// Returns the first field that differs, as spec.template.spec.containers[0].image.
std::string changed_field(const json& before, const json& after) {
  const json changes = json::diff(before, after);
  std::string name = "spec", word;
  const std::string pointer = changes.empty() ? "" : text_field(changes.front(), {"path"});
  for (std::size_t begin = pointer.find('/'); begin != std::string::npos;) {
    const std::size_t end = pointer.find('/', begin + 1);
    word = pointer.substr(begin + 1, end == std::string::npos ? end : end - begin - 1);
    const bool number = !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    name += number ? '[' + word + ']' : '.' + word;
    begin = end;
  }
  return name;
}

// Returns whether there is more to check.
bool review_change(const json& request, ReviewVerdict& verdict) {
  if (text_field(request, {"operation"}) != "UPDATE") return true;
  const json &before = field(request, {"oldObject"}), &after = field(request, {"object"});
  if (field(before, {"spec"}) == field(after, {"spec"})) return false;
  const kube::Job job = kube::parse_job(before);
  if (!job.group && !job.ended()) return true;
  verdict.faults.push_back(fmt::format("{} cannot be changed after the job has started; submit a new job instead",
                                       changed_field(field(before, {"spec"}), field(after, {"spec"}))));
  return false;
}

}  // namespace

std::vector<std::string> dropped_fields(const json& sent, const json& stored) {
  std::vector<std::string> dropped;
  collect_dropped(sent, stored, "", dropped);
  return dropped;
}

ReviewVerdict review_job(const json& request, const ReviewSettings& settings) {
  ReviewVerdict verdict;
  if (!review_change(request, verdict)) return verdict;
  const json job = complete_job(request);
  review_replicas(job, verdict);
  review_images(job, settings, verdict);
  review_pod(job, settings, verdict);
  return verdict;
}

json review_answer(const json& request, const ReviewVerdict& verdict) {
  json response{{"uid", text_field(request, {"uid"})}, {"allowed", verdict.faults.empty()}};
  if (!verdict.faults.empty()) {
    std::vector<std::string> faults;
    for (const std::string& fault : verdict.faults) {
      if (faults.size() < kMaxFaults) faults.push_back(one_line(fault, kMaxFault));
    }
    if (verdict.faults.size() > kMaxFaults)
      faults.push_back(fmt::format("{} more", verdict.faults.size() - kMaxFaults));
    response["status"] = {
        {"code", 422}, {"reason", "Invalid"}, {"message", fmt::format("{}", fmt::join(faults, "; "))}};
  }
  for (const std::string& warning : verdict.warnings) response["warnings"].push_back(one_line(warning, kMaxWarning));
  return {{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"response", std::move(response)}};
}

}  // namespace adaptdl::sched
