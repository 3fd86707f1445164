#include "operator/validator/job_review.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "kube/api/field_name.h"
#include "kube/api/json_fields.h"
#include "kube/jobs/job.h"
#include "kube/jobs/usage_ledger.h"
#include "operator/jobs/create_error.h"

namespace adaptdl::sched {
namespace {

using kube::array_field;
using kube::field;
using kube::text_field;
using nlohmann::json;
using Pointer = json::json_pointer;

constexpr const char* kTemplate = "spec.template.";
constexpr std::size_t kMaxFault = 1000, kMaxWarning = 250;  // bytes
constexpr std::size_t kMaxFaults = 10;
constexpr std::size_t kMaxValues = 250'000;
// The group number in the dry run. It is large, because the host names of replicas contain the group number, and must
// not become too long after a job has been restarted many times.
constexpr int kLateGroup = 999;

// Reads a few strings of a review and stores nothing else.
struct SummaryReader : json::json_sax_t {
  std::string uid, operation, deletion;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& text) override {
    if (is_at({"request", "uid"})) uid = text;
    if (is_at({"request", "operation"})) operation = text;
    if (is_at({"request", "object", "metadata", "deletionTimestamp"})) deletion = text;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ <= kDepth) keys_[depth_ - 1] = name.size() <= kMaxKey ? name : string_t();
    return true;
  }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr std::size_t kDepth = 4, kMaxKey = 32;

  bool enter() {
    if (++depth_ <= kDepth) keys_[depth_ - 1].clear();
    return true;
  }
  bool is_at(std::initializer_list<std::string_view> path) const {
    return depth_ == path.size() && std::equal(path.begin(), path.end(), keys_.begin());
  }

  std::size_t depth_ = 0;
  std::array<std::string, kDepth> keys_;  // keys of the enclosing objects, outermost first; an empty key for an array
};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == "" || value == false || value == 0;
}

// Returns the element of `list` that corresponds to element `place` of `sent`, or null if there is none. If the element
// of `sent` has a name, this is the element with the same name (if several elements have that name, the one at the same
// position among them), otherwise the element at the same place. Other webhooks may insert named elements anywhere, but
// only append unnamed ones.
const json* counterpart(const json& sent, std::size_t place, const json& list) {
  const std::string name = text_field(sent[place], {"name"});
  if (name.empty()) return place < list.size() && list.size() >= sent.size() ? &list[place] : nullptr;
  const auto has_name = [&](const json& element) { return text_field(element, {"name"}) == name; };
  auto before = std::count_if(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(place), has_name);
  for (const json& element : list) {
    if (has_name(element) && before-- == 0) return &element;
  }
  return nullptr;
}

void collect_dropped(const json& sent, const json& stored, const Pointer& path, std::vector<Pointer>& dropped) {
  if (sent.is_object() && stored.is_object()) {
    for (const auto& [key, value] : sent.items()) {
      if (is_empty(value)) continue;
      if (const auto kept = stored.find(key); kept != stored.end()) {
        collect_dropped(value, *kept, path / key, dropped);
      } else {
        dropped.push_back(path / key);
      }
    }
  } else if (sent.is_array() && stored.is_array()) {
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (const json* kept = counterpart(sent, i, stored)) collect_dropped(sent[i], *kept, path / i, dropped);
    }
  }
}

// Returns the paths of the fields of `sent` that are missing in `stored`, except fields that are empty, zero or false,
// because Kubernetes omits those.
std::vector<Pointer> dropped_fields(const json& sent, const json& stored) {
  std::vector<Pointer> dropped;
  collect_dropped(sent, stored, Pointer(), dropped);
  return dropped;
}

// Returns the job as it would be stored, with placeholders for missing metadata that its pods require.
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
  verdict.faults.push_back(fmt::format("spec.minReplicas ({}) must not be greater than spec.maxReplicas ({})",
                                       *parsed.min_replicas, *parsed.max_replicas));
}

void review_images(const json& job, const ReviewSettings& settings, ReviewVerdict& verdict) {
  for (const char* list : {"initContainers", "containers"}) {
    const auto& containers = array_field(job, {"spec", "template", "spec", list});
    for (std::size_t i = 0; i < containers.size(); ++i) {
      const std::string image = text_field(containers[i], {"image"});
      if (image.empty()) continue;  // the dry run reports it
      if (const std::string fault = settings.image_fault(image); !fault.empty())
        verdict.faults.push_back(fmt::format("{}spec.{}[{}]: {}", kTemplate, list, i, fault));
    }
  }
}

// Returns the field of the job that determines a field of its pods.
std::string job_field(const std::string& pod_field) {
  if (pod_field == "spec.hostname" || pod_field == "metadata.name") return "metadata.name";
  const bool of_template = pod_field.starts_with("spec.") || pod_field.starts_with("metadata.");
  return of_template ? kTemplate + pod_field : pod_field;
}

// Returns the unknown fields that the API server reports with fieldValidation=Strict.
std::vector<std::string> unknown_fields(const std::string& message) {
  constexpr std::string_view kUnknown = "unknown field \"";
  std::vector<std::string> fields;
  for (std::size_t begin = message.find(kUnknown); begin != std::string::npos; begin = message.find(kUnknown, begin)) {
    begin += kUnknown.size();
    fields.push_back(message.substr(begin, message.find('"', begin) - begin));
  }
  return fields;
}

// Adds the faults that the API server reports for the pod, and names the corresponding fields of the job.
void add_pod_faults(const kube::ApiError& error, ReviewVerdict& verdict) {
  const std::size_t before = verdict.faults.size();
  for (const json& cause : array_field(error.details(), {"causes"})) {
    const std::string at = text_field(cause, {"field"}), why = text_field(cause, {"message"});
    verdict.faults.push_back(at.empty() ? why : job_field(at) + ": " + why);
  }
  for (const std::string& unknown : unknown_fields(error.server_message()))
    verdict.faults.push_back(job_field(unknown) + ": unknown field");
  if (verdict.faults.size() == before)
    verdict.faults.push_back(fmt::format("the pods of this job would be rejected: {}", error.server_message()));
}

void review_pod(const json& job, const ReviewSettings& settings, ReviewVerdict& verdict) {
  json pod;
  try {
    pod = make_replica_pod(job, {.nodes = {}, .group = kLateGroup, .rank = 0, .token = {}, .hostname = {}},
                           settings.pods);
  } catch (const Error& error) {  // one of the operator's patches cannot be applied to the template
    verdict.faults.emplace_back(error.what());
    return;
  }
  try {
    const json stored = settings.dry_run(text_field(job, {"metadata", "namespace"}), pod);
    if (!settings.compare_fields) return;
    // Fields that the operator's patches removed are missing, too, but they are not unknown fields.
    const json& given = field(job, {"spec", "template"});
    const std::vector<Pointer> removed = dropped_fields(given, pod);
    for (const Pointer& path : dropped_fields(given, stored)) {
      if (std::ranges::find(removed, path) == removed.end())
        verdict.faults.push_back(fmt::format("{}{}: unknown field", kTemplate, kube::field_name(path)));
    }
  } catch (const kube::ApiError& error) {
    if (error.server_message().find("does not support dry run") != std::string::npos) {
      verdict.warnings.push_back("the pod template was not checked: " + error.server_message());
      return;
    }
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

// Returns the part of a spec that must not change once the job has started.
json fixed_part(json spec) {
  if (spec.is_object()) spec.erase("suspend");
  return spec;
}

// Checks whether the request may change the spec. Returns whether the new job must be checked, too.
bool review_change(const json& request, ReviewVerdict& verdict) {
  if (text_field(request, {"operation"}) != "UPDATE") return true;
  const json& old_job = field(request, {"oldObject"});
  const json before = fixed_part(field(old_job, {"spec"})), after = fixed_part(field(request, {"object", "spec"}));
  if (before == after) return false;
  const kube::Job job = kube::parse_job(old_job);
  if (!job.group && !job.ended()) return true;
  const json changes = json::diff(before, after);
  Pointer path("/spec" + text_field(changes.front(), {"path"}));
  if (path.back() == "-") path.pop_back();  // an element was added at the end of a list
  const std::string first = kube::field_name(path);
  verdict.faults.push_back(
      fmt::format("{} cannot be changed after the job has started; submit a new job instead", first));
  return false;
}

}  // namespace

ReviewVerdict review_job(const json& request, const ReviewSettings& settings) {
  ReviewVerdict verdict;
  if (!review_change(request, verdict)) return verdict;
  const json job = complete_job(request);
  review_replicas(job, verdict);
  review_images(job, settings, verdict);
  review_pod(job, settings, verdict);
  return verdict;
}

json submitter_patch(const json& request) {
  const bool created = text_field(request, {"operation"}) == "CREATE";
  const json &annotations = field(request, {"object", "metadata", "annotations"}),
             &before = field(request, {"oldObject", "metadata", "annotations", kube::kSubmitterAnnotation});
  const json wanted = created ? json(text_field(request, {"userInfo", "username"})) : before;
  const json& present = field(annotations, {kube::kSubmitterAnnotation});
  if (wanted == present) return json::array();
  const json path = (Pointer("/metadata/annotations") / kube::kSubmitterAnnotation).to_string();
  if (wanted.is_null()) return {{{"op", "remove"}, {"path", path}}};
  if (annotations.is_object()) return {{{"op", "add"}, {"path", path}, {"value", wanted}}};
  return {{{"op", "add"}, {"path", "/metadata/annotations"}, {"value", {{kube::kSubmitterAnnotation, wanted}}}}};
}

std::string reading_fault(std::string_view review) {
  if (count_values(review) > kMaxValues)
    return fmt::format("the job has too many values; a request may contain at most {}", kMaxValues);
  if (is_nested_deeper(review, kMaxForeignJsonDepth))
    return fmt::format("the job is nested deeper than {} levels", kMaxForeignJsonDepth);
  return "";
}

ReviewSummary summarize_review(std::string_view review) {
  SummaryReader reader;
  json::sax_parse(review, &reader, json::input_format_t::json, false);
  return {.uid = reader.uid, .being_deleted = reader.operation == "UPDATE" && !reader.deletion.empty()};
}

json patch_answer(const json& request, const json& patch) {
  json response{{"uid", text_field(request, {"uid"})}, {"allowed", true}};
  if (!patch.empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = encode_base64(patch.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return {{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"response", std::move(response)}};
}

// The reason is Forbidden, because kubectl before 1.25 does not print the message if the reason is Invalid.
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
        {"code", 403}, {"reason", "Forbidden"}, {"message", fmt::format("{}", fmt::join(faults, "; "))}};
  }
  for (const std::string& warning : verdict.warnings) response["warnings"].push_back(one_line(warning, kMaxWarning));
  return {{"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"response", std::move(response)}};
}

}  // namespace adaptdl::sched
