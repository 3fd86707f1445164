#include "kube/jobs/job_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <set>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "kube/api/field_name.h"
#include "kube/api/json_fields.h"
#include "kube/api/names.h"
#include "kube/api/quantity.h"
#include "kube/api/yaml_documents.h"
#include "kube/jobs/submission.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;
using Words = std::initializer_list<std::string_view>;

constexpr const char* kJobVersion = "adaptdl.petuum.com/v1";

bool among(const Words& words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

// Checks one document.
class Check {
 public:
  Check(YamlDocument& document, const JobFileNeeds& needs) : document_(document), needs_(needs) {}

  json job() {
    json& root = document_.value;
    if (!root.is_object()) fail(Pointer(), "not an AdaptDLJob; expected apiVersion, kind, metadata and spec");
    kind();
    known(Pointer(), {"apiVersion", "kind", "metadata", "spec", "status"});
    root.erase("status");  // kubectl's output contains one
    metadata();
    spec();
    return std::move(root);
  }

 private:
  [[noreturn]] void fail(const Pointer& at, const std::string& why) const { document_.fail(at, why); }
  const json* find(const Pointer& at) const { return document_.find(at); }
  const json* object(const Pointer& at) const { return document_.mapping(at); }
  const json& need(const Pointer& at, const char* what) const {
    const json* value = find(at);
    if (value == nullptr) fail(at, fmt::format("{} is missing: {}", field_name(at), what));
    return *value;
  }
  std::size_t count(const Pointer& at) const {
    const json* items = document_.list(at);
    return items == nullptr ? 0 : items->size();
  }
  std::string text(const Pointer& at) const {
    const json* value = find(at);
    if (value == nullptr) return "";
    if (!value->is_string())
      fail(at, fmt::format("{} must be a string; put {} in quotes", field_name(at), shown(*value)));
    return value->get<std::string>();
  }
  static std::string shown(const json& value) {
    return value.is_structured() ? "it" : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  void known(const Pointer& at, const Words& words) const {
    for (const auto& [word, value] : document_.value.at(at).items()) {
      if (among(words, word)) continue;
      const std::string where = at.empty() ? "an AdaptDLJob" : field_name(at);
      fail(at / word, fmt::format("unknown field '{}' in {}: expected one of {}", word, where, fmt::join(words, ", ")));
    }
  }

  void kind() const {
    const Pointer version("/apiVersion"), what("/kind");
    need(version, "expected adaptdl.petuum.com/v1");
    if (text(version) != kJobVersion)
      fail(version, fmt::format("invalid apiVersion '{}': expected {}", text(version), kJobVersion));
    need(what, "expected AdaptDLJob");
    if (text(what) != "AdaptDLJob")
      fail(what, fmt::format("invalid kind '{}': expected AdaptDLJob; create other objects with kubectl", text(what)));
  }

  void texts(const Pointer& at) const {
    if (object(at) == nullptr) return;
    for (const auto& [word, value] : find(at)->items()) {
      if (!value.is_string())
        fail(at / word, fmt::format("{}: the value of '{}' must be a string; put {} in quotes", field_name(at), word,
                                    shown(value)));
    }
  }

  void metadata() const {
    const Pointer at("/metadata");
    if (object(at) == nullptr) {
      if (needs_.name) fail(at, "metadata is missing: expected a name or generateName; add one, or use --name");
      document_.value["metadata"] = json::object();
      return;
    }
    // `kubectl get -o yaml` writes these fields, which the server sets.
    for (const char* word : {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"})
      document_.value["metadata"].erase(word);
    known(at, {"name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences"});
    const std::string name = text(at / "name"), prefix = text(at / "generateName"), space = text(at / "namespace");
    if (name.empty() && prefix.empty() && needs_.name)
      fail(at, "metadata has neither name nor generateName; add one, or use --name");
    if (!name.empty()) {
      if (const std::string why = not_a_job_name(name); !why.empty()) fail(at / "name", "metadata.name " + why);
    }
    if (!prefix.empty()) {
      if (const std::string why = not_a_job_prefix(prefix); !why.empty())
        fail(at / "generateName", "metadata.generateName " + why);
    }
    if (!space.empty()) {
      if (const std::string why = not_a_label(space); !why.empty()) fail(at / "namespace", "metadata.namespace " + why);
    }
    texts(at / "labels");
    texts(at / "annotations");
  }

  int replicas(const char* word, int minimum, int otherwise) const {
    const Pointer at = Pointer("/spec") / word;
    const json* value = find(at);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer() || *value < minimum || *value > std::numeric_limits<int>::max())
      fail(at, fmt::format("spec.{} must be an integer of at least {}, not {}", word, minimum, shown(*value)));
    return value->get<int>();
  }

  void spec() const {
    const Pointer at("/spec"), pod = at / "template";
    need(at, "expected the template of the job's pods");
    object(at);
    if (find(at / "spec") != nullptr && find(pod) == nullptr)
      fail(at / "spec", "'spec' is next to 'template' but belongs in it; indent it by two more spaces");
    known(at, {"template", "minReplicas", "maxReplicas", "preemptible", "suspend"});
    const int min_replicas = replicas("minReplicas", 0, 0);
    const int max_replicas = replicas("maxReplicas", 1, std::numeric_limits<int>::max());
    if (min_replicas > max_replicas) {
      fail(at / "minReplicas", fmt::format("spec.minReplicas ({}) must not be greater than spec.maxReplicas ({})",
                                           min_replicas, max_replicas));
    }
    for (const char* word : {"preemptible", "suspend"}) {
      const json* value = find(at / word);
      if (value != nullptr && !value->is_boolean())
        fail(at / word, fmt::format("spec.{} must be true or false, not {}", word, shown(*value)));
    }
    need(pod, "expected the pod template of a replica, as in a Deployment");
    object(pod);
    known(pod, {"metadata", "spec"});
    if (object(pod / "metadata") != nullptr) {
      texts(pod / "metadata" / "labels");
      texts(pod / "metadata" / "annotations");
    }
    need(pod / "spec", "expected the containers");
    object(pod / "spec");
    pod_spec(pod / "spec");
  }

  void pod_spec(const Pointer& at) const {
    const Pointer all = at / "containers";
    need(all, "expected at least one container");
    if (count(all) == 0) fail(all, fmt::format("{} is empty: expected at least one container", field_name(all)));
    std::set<std::string> names;
    for (std::size_t i = 0; i < count(all); ++i) container(all / i, names, needs_.image || i > 0);
    for (std::size_t i = 0; i < count(at / "initContainers"); ++i) container(at / "initContainers" / i, names, true);
    for (std::size_t i = 0; i < count(at / "volumes"); ++i) {
      const Pointer volume = at / "volumes" / i;
      object(volume);
      const std::string name = text(volume / "name");
      if (name.empty()) fail(volume, fmt::format("{} has no name", field_name(volume)));
      if (name == kJobVolume || name == kTensorBoardVolume)
        fail(volume,
             fmt::format("volume name '{}' is reserved for a volume that adaptdl adds; use another name", name));
    }
  }

  void container(const Pointer& at, std::set<std::string>& names, bool needs_image) const {
    if (object(at) == nullptr) fail(at, fmt::format("{} must be a mapping", field_name(at)));
    const std::string name = text(at / "name");
    if (name.empty()) fail(at, fmt::format("{} has no name", field_name(at)));
    if (const std::string why = not_a_label(name); !why.empty())
      fail(at / "name", fmt::format("{} {}", field_name(at / "name"), why));
    if (!names.insert(name).second) fail(at / "name", fmt::format("duplicate container name '{}'", name));
    if (text(at / "image").empty() && needs_image)
      fail(at, fmt::format("{} has no image; {}", field_name(at),
                           needs_.image ? "add one" : "an image is built only for the first container"));
    for (const char* list : {"command", "args"}) {
      for (std::size_t i = 0; i < count(at / list); ++i) {
        if (find(at / list / i) == nullptr) fail(at / list / i, fmt::format("{} is empty", field_name(at / list / i)));
        text(at / list / i);
      }
    }
    environment(at / "env");
    for (const char* kind : {"requests", "limits"}) amounts(at / "resources" / kind);
    mounts(at / "volumeMounts");
  }

  void environment(const Pointer& at) const {
    for (std::size_t i = 0; i < count(at); ++i) {
      object(at / i);
      const std::string name = text(at / i / "name");
      if (name.empty()) fail(at / i, fmt::format("{} has no name", field_name(at / i)));
      if (name == "ADAPTDL_CHECKPOINT_PATH" || name == "ADAPTDL_SHARE_PATH")
        fail(at / i, fmt::format("{} is set when the job is submitted; remove it here", name));
      text(at / i / "value");
    }
  }

  void mounts(const Pointer& at) const {
    for (std::size_t i = 0; i < count(at); ++i) {
      object(at / i);
      const std::string path = text(at / i / "mountPath");
      if (path.empty()) fail(at / i, fmt::format("{} has no mountPath", field_name(at / i)));
      if (path == kCheckpointPath || path == kSharePath || path == kTensorBoardPath)
        fail(at / i, fmt::format("'{}' is reserved for a volume that adaptdl adds; use another mountPath", path));
    }
  }

  void amounts(const Pointer& at) const {
    if (!at.parent_pointer().empty()) object(at.parent_pointer());
    if (object(at) == nullptr) return;
    for (const auto& [word, value] : find(at)->items()) {
      try {
        Quantity::parse(value.is_string() ? value.get<std::string>() : value.dump());
      } catch (const Error&) {
        fail(at / word, fmt::format("{}: {} must be an amount such as 2, 500m or 4Gi, not {}", field_name(at), word,
                                    shown(value)));
      }
    }
  }

  YamlDocument& document_;
  const JobFileNeeds& needs_;
};

}  // namespace

std::vector<json> parse_job_file(std::string_view text, const std::string& file, const JobFileNeeds& needs) {
  std::vector<YamlDocument> documents = parse_yaml_documents(text, file);
  if (documents.empty()) throw Error(fmt::format("{}: contains no job", file));
  std::vector<json> jobs;
  std::set<std::string> names;
  for (YamlDocument& document : documents) {
    json job = Check(document, needs).job();
    const std::string name = text_field(job, {"metadata", "name"});
    if (!name.empty() && !names.insert(text_field(job, {"metadata", "namespace"}) + '/' + name).second)
      document.fail(Pointer("/metadata/name"), fmt::format("duplicate job name '{}'", name));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace adaptdl::kube
