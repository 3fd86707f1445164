#include "operator/jobs/replica_pod.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "kube/api/json_fields.h"
#include "kube/api/quantity.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr int kFirstPort = 47000, kPorts = 18000;
constexpr const char* kSharedMemory = "adaptdl-shm";
constexpr const char* kTokenVolume = "adaptdl-token";
constexpr const char* kTokenDirectory = "/var/run/secrets/adaptdl";
constexpr const char* kKubeflowUrl = "KUBEFLOW_TRAINER_SERVER_URL";

json& object_at(json& parent, const char* name) {
  json& value = parent[name];
  if (!value.is_object()) value = json::object();
  return value;
}

json& array_at(json& parent, const char* name) {
  json& value = parent[name];
  if (!value.is_array()) value = json::array();
  return value;
}

void apply_patch(json& target, const json& patch, const char* what) {
  if (patch.is_null() || patch.empty()) return;
  try {
    if (patch.is_array()) {
      target = target.patch(patch);
    } else {
      target.merge_patch(patch);
    }
  } catch (const json::exception& error) {
    throw Error(fmt::format("cannot apply the operator's {} patch: {}", what, error.what()));
  }
}

using Variables = std::vector<std::pair<const char*, std::string>>;

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

Variables environment(const json& job, const PodPlace& place, const PodSettings& settings) {
  const std::set<std::string> nodes(place.nodes.begin(), place.nodes.end());
  Variables variables{
      {"ADAPTDL_JOB_ID", text_field(job, {"metadata", "namespace"}) + '/' + text_field(job, {"metadata", "name"})},
      {"ADAPTDL_MASTER_PORT", std::to_string(master_port(place.group, 0))},
      {"ADAPTDL_NUM_NODES", std::to_string(nodes.size())},
      {"ADAPTDL_NUM_REPLICAS", std::to_string(place.nodes.size())},
      {"ADAPTDL_NUM_RESTARTS", std::to_string(place.group)},
      {"ADAPTDL_REPLICA_RANK", std::to_string(place.rank)},
      {"ADAPTDL_SCHED_VERSION", kSchedVersion},
      {"ADAPTDL_SUPERVISOR_URL", settings.supervisor_url},
      {kTokenVariable, place.token},
  };
  if (settings.live_rescale) {
    variables.emplace_back("ADAPTDL_GENERATION", std::to_string(place.generation));
    variables.emplace_back("ADAPTDL_REPLICA_ID", replica_id(place.group, place.number));
  }
  return variables;
}

std::optional<kube::Quantity> quantity(const json& amount) {
  try {
    return kube::Quantity::parse(amount.is_string() ? amount.get<std::string>() : amount.dump());
  } catch (const Error&) {
    return {};  // the API server rejects it
  }
}

// Returns whether the request and the limit of the resource may differ.
bool can_be_overcommitted(std::string_view resource) {
  return resource == "cpu" || resource == "memory" || resource == "ephemeral-storage";
}

// Returns whether a container may have this request and this limit of the resource.
bool agree(const std::string& resource, const json& request, const json& limit) {
  if (request.is_null() || limit.is_null()) return true;
  const auto requested = quantity(request), limited = quantity(limit);
  return can_be_overcommitted(resource) ? !(requested && limited && *requested > *limited) : requested == limited;
}

// Adds the default amounts of resources that the container does not specify itself, unless the container's own limit or
// request of the same resource would make them invalid.
void add_default_resources(json& container, const json& defaults) {
  if (defaults.empty()) return;
  const json own = field(container, {"resources"});
  if (!own.is_null() && !own.is_object()) return;  // the API server rejects it
  for (const auto& [part, amounts] : defaults.items()) {
    json& given = container["resources"][part];
    if (!amounts.is_object() || !(given.is_null() || given.is_object())) {
      if (given.is_null()) given = amounts;
      continue;
    }
    for (const auto& [name, amount] : amounts.items()) {
      const char* const resource = name.c_str();
      if (!field(given, {resource}).is_null()) continue;
      const bool fits = part == "requests" ? agree(name, amount, field(own, {"limits", resource}))
                                           : agree(name, field(own, {"requests", resource}), amount);
      if (fits) given[name] = amount;
    }
    if (given.empty()) container["resources"].erase(part);
  }
}

void add_environment(json& container, const Variables& variables) {
  // If a name occurs twice, Kubernetes uses the last value.
  json& env = array_at(container, "env");
  for (const auto& [name, value] : variables) env.push_back({{"name", name}, {"value", value}});
  json& mounts = array_at(container, "volumeMounts");
  for (const json& mount : mounts) {
    if (text_field(mount, {"mountPath"}) == "/dev/shm") return;
  }
  mounts.push_back({{"name", kSharedMemory}, {"mountPath", "/dev/shm"}});
}

// Lets Kubeflow's SDK and the callback of Hugging Face's Trainer report progress to the supervisor, unless the
// container already names another server for these reports.
void report_by_kubeflow(json& container, const json& job, const PodSettings& settings) {
  json& env = array_at(container, "env");
  for (const json& variable : env) {
    if (text_field(variable, {"name"}) == kKubeflowUrl) return;
  }
  env.push_back({{"name", kKubeflowUrl},
                 {"value", fmt::format("{}/kubeflow/{}/{}", settings.supervisor_url,
                                       text_field(job, {"metadata", "namespace"}), kube::name_of(job))}});
  env.push_back({{"name", "KUBEFLOW_TRAINER_SERVER_TOKEN"}, {"value", fmt::format("{}/token", kTokenDirectory)}});
  array_at(container, "volumeMounts")
      .push_back({{"name", kTokenVolume}, {"mountPath", kTokenDirectory}, {"readOnly", true}});
}

void set_metadata(json& metadata, const json& job, const PodPlace& place) {
  const std::string name = text_field(job, {"metadata", "name"}), uid = text_field(job, {"metadata", "uid"});
  metadata.erase("generateName");
  metadata["name"] = replica_name(job, place.group, place.number);
  metadata["namespace"] = text_field(job, {"metadata", "namespace"});
  metadata["ownerReferences"] = json::array({{{"apiVersion", "adaptdl.petuum.com/v1"},
                                              {"kind", "AdaptDLJob"},
                                              {"name", name},
                                              {"uid", uid},
                                              {"controller", true},
                                              {"blockOwnerDeletion", true}}});
  json& labels = object_at(metadata, "labels");
  labels["adaptdl"] = "true";
  labels["adaptdl/job"] = name;
  labels["petuum.com/nodegroup"] = "all";
  json& annotations = object_at(metadata, "annotations");
  annotations[kGroupAnnotation] = std::to_string(place.group);
  annotations[kRankAnnotation] = std::to_string(place.rank);
  annotations[kReplicasAnnotation] = std::to_string(place.nodes.size());
  annotations[kReplicaAnnotation] = std::to_string(place.number);
  annotations[kTokenAnnotation] = place.token;
  if (!place.nodes.empty()) annotations["adaptdl/node"] = place.nodes[static_cast<std::size_t>(place.rank)];
}

}  // namespace

std::string replica_name(const json& job, int group, int number) {
  return fmt::format("{}-{}-{}-{}", text_field(job, {"metadata", "name"}), text_field(job, {"metadata", "uid"}), group,
                     number);
}

std::string replica_id(int group, int number) { return fmt::format("{}-{}", group, number); }

std::optional<ReplicaNumber> parse_replica_id(std::string_view id) {
  const std::size_t dash = id.find('-');
  if (dash == std::string_view::npos) return {};
  const auto group = parse_count(id.substr(0, dash)), number = parse_count(id.substr(dash + 1));
  if (!group || !number) return {};
  return ReplicaNumber{*group, *number};
}

std::uint16_t master_port(int group, int generation) {
  return static_cast<std::uint16_t>(kFirstPort + (group % kPorts + generation % kPorts) % kPorts);
}

json make_replica_pod(const json& job, const PodPlace& place, const PodSettings& settings) {
  const json& given = field(job, {"spec", "template"});
  json pod = given.is_object() ? given : json::object();
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  set_metadata(object_at(pod, "metadata"), job, place);
  json& spec = object_at(pod, "spec");
  spec["restartPolicy"] = "Never";
  spec["hostname"] = fmt::format("{}-{}-{}", text_field(job, {"metadata", "name"}), place.group, place.number);
  if (!place.nodes.empty())
    object_at(spec, "nodeSelector")["kubernetes.io/hostname"] =
        place.hostname.empty() ? place.nodes[static_cast<std::size_t>(place.rank)] : place.hostname;
  json& volumes = array_at(spec, "volumes");
  volumes.push_back({{"name", kSharedMemory}, {"emptyDir", {{"medium", "Memory"}}}});
  const json token{{"path", "token"},
                   {"fieldRef", {{"fieldPath", fmt::format("metadata.annotations['{}']", kTokenAnnotation)}}}};
  volumes.push_back({{"name", kTokenVolume}, {"downwardAPI", {{"items", json::array({token})}}}});
  const Variables variables = environment(job, place, settings);
  json& containers = array_at(spec, "containers");
  for (json& container : containers) {
    if (!container.is_object()) continue;
    if (&container == &containers.front()) add_default_resources(container, settings.resources);
    add_environment(container, variables);
    report_by_kubeflow(container, job, settings);
    apply_patch(container, settings.container_patch, "container");
  }
  apply_patch(pod, settings.pod_patch, "pod");
  return pod;
}

}  // namespace adaptdl::sched
