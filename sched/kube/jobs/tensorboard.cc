#include "kube/jobs/tensorboard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <thread>

#include "adaptdl/error.h"
#include "kube/api/quantity.h"
#include "kube/jobs/job_why.h"
#include "kube/jobs/storage_class.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kLabel = "adaptdl/tensorboard";
constexpr std::array kSharedProvisioners{"microk8s.io/hostpath", "cephfs.csi.ceph.com", "efs"};
constexpr std::size_t kMaxNameLength = 63;
constexpr auto kLookEvery = std::chrono::milliseconds(300);
constexpr auto kTroubleLasts = std::chrono::seconds(60);
constexpr auto kMaxEnd = std::chrono::seconds(90);

bool is_label_character(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

std::string metadata_name(const json& object) { return object.value("/metadata/name"_json_pointer, ""); }

std::string selector_of(const std::string& name) { return fmt::format("{}={}", kLabel, name); }

bool exists(Client& client, const std::string& at) {
  try {
    client.get(at);
    return true;
  } catch (const ApiError& error) {
    if (!error.not_found()) throw;
    return false;
  }
}

// Returns false if the object did not exist.
bool remove(Client& client, const std::string& at, Propagation propagation) {
  try {
    client.remove(at, {.propagation = propagation});
    return true;
  } catch (const ApiError& error) {
    if (!error.not_found()) throw;
    return false;
  }
}

bool remove_all(Client& client, const std::string& name_space, const std::string& object_name) {
  bool any = remove(client, path(kDeployments, name_space, object_name), Propagation::kBackground);
  any = remove(client, path(kServices, name_space, object_name), Propagation::kBackground) || any;
  return remove(client, path(kPersistentVolumeClaims, name_space, object_name), Propagation::kBackground) || any;
}

const json* find_named(const std::vector<json>& objects, const std::string& name) {
  const auto found =
      std::ranges::find_if(objects, [&name](const json& object) { return metadata_name(object) == name; });
  return found == objects.end() ? nullptr : &*found;
}

std::string why_not_ready(const std::vector<json>& pods, const std::string& name, const json& deployment) {
  for (const json& pod : pods) {
    if (pod.value("/metadata/labels"_json_pointer, json::object()).value(kLabel, "") != name) continue;
    if (const std::string trouble = pod_trouble(pod); !trouble.empty()) return trouble;
  }
  // If there is no pod, the Deployment reports the reason, such as a quota.
  for (const json& condition : deployment.value("/status/conditions"_json_pointer, json::array())) {
    if (condition.value("type", "") == "ReplicaFailure") return condition.value("message", "");
  }
  return {};
}

}  // namespace

std::string tensorboard_object_name(const std::string& name) {
  const std::string whole = "adaptdl-tensorboard-" + name;
  if (name.empty() || name.ends_with('-') || whole.size() > kMaxNameLength ||
      !std::ranges::all_of(name, is_label_character)) {
    throw UsageError(
        fmt::format("tensorboard: invalid name '{}': expected at most {} lowercase letters, digits or '-', ending with "
                    "a letter or digit",
                    name, kMaxNameLength - (whole.size() - name.size())));
  }
  return whole;
}

TensorBoardObjects tensorboard_objects(const TensorBoardOptions& options) {
  const std::string name = tensorboard_object_name(options.name);
  try {
    if (Quantity::parse(options.size) <= Quantity()) throw Error("must be positive");
  } catch (const Error&) {
    throw UsageError(
        fmt::format("tensorboard: invalid --size '{}': expected an amount of storage such as 10Gi", options.size));
  }
  const json labels{{kLabel, options.name}};
  const json metadata{{"name", name}, {"labels", labels}};
  const json container{{"name", "tensorboard"},
                       {"image", options.image},
                       {"command", {"tensorboard"}},
                       {"args", {"--host=0.0.0.0", "--logdir=/adaptdl/tensorboard"}},
                       {"ports", {{{"containerPort", kTensorBoardPort}}}},
                       // With this probe, the Service routes no requests to TensorBoard until it accepts connections.
                       {"readinessProbe", {{"tcpSocket", {{"port", kTensorBoardPort}}}, {"periodSeconds", 2}}},
                       {"volumeMounts", {{{"name", "logdir"}, {"mountPath", "/adaptdl/tensorboard"}}}}};
  const json volume{{"name", "logdir"}, {"persistentVolumeClaim", {{"claimName", name}}}};
  return {
      .deployment = {{"apiVersion", "apps/v1"},
                     {"kind", "Deployment"},
                     {"metadata", metadata},
                     {"spec",
                      {{"selector", {{"matchLabels", labels}}},
                       {"template",
                        {{"metadata", {{"labels", labels}}},
                         {"spec", {{"volumes", json::array({volume})}, {"containers", json::array({container})}}}}}}}},
      .claim = {{"apiVersion", "v1"},
                {"kind", "PersistentVolumeClaim"},
                {"metadata", metadata},
                {"spec",
                 {{"storageClassName", options.storage_class},
                  {"accessModes", {"ReadWriteMany"}},
                  {"volumeMode", "Filesystem"},
                  {"resources", {{"requests", {{"storage", options.size}}}}}}}},
      .service = {{"apiVersion", "v1"},
                  {"kind", "Service"},
                  {"metadata", metadata},
                  {"spec",
                   {{"selector", labels},
                    {"type", options.node_port ? "NodePort" : "ClusterIP"},
                    {"ports", {{{"port", kTensorBoardPort}, {"targetPort", kTensorBoardPort}}}}}}}};
}

std::string choose_storage_class(const std::vector<json>& classes, const std::string& wanted) {
  std::vector<std::string> names;
  for (const json& one : classes) names.push_back(metadata_name(one));
  const std::string there =
      names.empty() ? "the cluster has none" : fmt::format("available: {}", fmt::join(names, ", "));
  if (!wanted.empty()) {
    if (std::ranges::find(names, wanted) != names.end()) return wanted;
    throw Error(fmt::format("storage class '{}' not found; {}", wanted, there));
  }
  for (const json& one : classes) {
    if (one.value("/metadata/annotations"_json_pointer, json::object()).value(kDefaultClassAnnotation, "") == "true")
      return metadata_name(one);
  }
  for (const json& one : classes) {
    const std::string provisioner = one.value("provisioner", "");
    if (std::ranges::any_of(kSharedProvisioners,
                            [&](const char* word) { return provisioner.find(word) != std::string::npos; }))
      return metadata_name(one);
  }
  if (names.empty())
    throw Error("the cluster has no storage classes; create one whose volumes several nodes can share");
  throw Error(fmt::format("no default storage class; choose one with --storageclass; {}", there));
}

void create_tensorboard(Client& client, const std::string& name_space, const TensorBoardOptions& options) {
  TensorBoardObjects objects = tensorboard_objects(options);
  const std::string name = tensorboard_object_name(options.name);
  objects.claim["spec"]["storageClassName"] =
      choose_storage_class(client.list(path(kStorageClasses, "")), options.storage_class);
  for (const Resource& resource : {kDeployments, kPersistentVolumeClaims, kServices}) {
    if (exists(client, path(resource, name_space, name)))
      throw Error(
          fmt::format("{} '{}' already exists in namespace '{}'; choose another name, or delete that TensorBoard first",
                      resource.kind, name, name_space));
  }
  // A dry run detects rejections by admission, quotas and permissions before anything is created.
  const Query dry{{"dryRun", "All"}};
  client.create(path(kPersistentVolumeClaims, name_space), objects.claim, dry);
  client.create(path(kServices, name_space), objects.service, dry);
  client.create(path(kDeployments, name_space), objects.deployment, dry);
  // If another process creates a TensorBoard with this name at the same time, this call fails before anything exists
  // that would have to be deleted.
  const json deployment = client.create(path(kDeployments, name_space), objects.deployment);
  try {
    const json owner{{"apiVersion", "apps/v1"},
                     {"kind", "Deployment"},
                     {"name", name},
                     {"uid", deployment.at("metadata").at("uid")}};
    for (json* object : {&objects.claim, &objects.service})
      (*object)["metadata"]["ownerReferences"] = json::array({owner});
    client.create(path(kPersistentVolumeClaims, name_space), objects.claim);
    client.create(path(kServices, name_space), objects.service);
  } catch (const Error&) {
    try {
      remove_all(client, name_space, name);
    } catch (const Error&) {
      // Report the first error instead.
    }
    throw;
  }
}

std::vector<TensorBoard> list_tensorboards(Client& client, const std::string& name_space) {
  const ListOptions ours{.label_selector = kLabel, .field_selector = ""};
  const auto deployments = client.list(path(kDeployments, name_space), ours);
  if (deployments.empty()) return {};
  const auto claims = client.list(path(kPersistentVolumeClaims, name_space), ours);
  const auto services = client.list(path(kServices, name_space), ours);
  const auto pods = client.list(path(kPods, name_space), ours);
  std::vector<TensorBoard> all;
  for (const json& deployment : deployments) {
    TensorBoard board;
    board.name = deployment.at("metadata").at("labels").at(kLabel);
    board.ready = deployment.value("/status/readyReplicas"_json_pointer, 0);
    board.wanted = deployment.value("/spec/replicas"_json_pointer, 1);
    if (const json* claim = find_named(claims, metadata_name(deployment)))
      board.size = claim->value("/spec/resources/requests/storage"_json_pointer, "");
    if (const json* service = find_named(services, metadata_name(deployment))) {
      if (const int port = service->value("/spec/ports/0/nodePort"_json_pointer, 0); port != 0) board.node_port = port;
    }
    if (board.ready < board.wanted) board.why = why_not_ready(pods, board.name, deployment);
    all.push_back(std::move(board));
  }
  return all;
}

TensorBoard get_tensorboard(Client& client, const std::string& name_space, const std::string& name) {
  for (TensorBoard& board : list_tensorboards(client, name_space)) {
    if (board.name == name) return std::move(board);
  }
  throw Error(
      fmt::format("TensorBoard instance '{0}' not found in namespace '{1}'; `adaptdl tensorboard list -n {1}` shows "
                  "the existing ones",
                  name, name_space));
}

void wait_until_ready(Client& client, const std::string& name_space, const std::string& name, std::stop_token stop,
                      const std::function<void(const std::string&)>& notice) {
  auto well = Clock::now();
  std::string last;
  for (bool first = true; !stop.stop_requested(); first = false) {
    const TensorBoard board = get_tensorboard(client, name_space, name);
    if (board.ready > 0) return;
    if (first) notice(fmt::format("waiting for TensorBoard instance '{}' to be ready", name));
    if (board.why.empty()) well = Clock::now();
    if (Clock::now() - well > kTroubleLasts)
      throw Error(fmt::format("TensorBoard instance '{}' did not become ready: {}", name, board.why));
    if (!board.why.empty() && board.why != last) notice(last = board.why);
    std::this_thread::sleep_for(kLookEvery);
  }
}

void delete_tensorboard(Client& client, const std::string& name_space, const std::string& name) {
  const std::string object_name = tensorboard_object_name(name);
  if (!remove_all(client, name_space, object_name)) get_tensorboard(client, name_space, name);
  const auto until = Clock::now() + kMaxEnd;
  const auto is_there = [&] {
    return exists(client, path(kPersistentVolumeClaims, name_space, object_name)) ||
           !client.list(path(kPods, name_space), {.label_selector = selector_of(name), .field_selector = ""}).empty() ||
           exists(client, path(kDeployments, name_space, object_name)) ||
           exists(client, path(kServices, name_space, object_name));
  };
  while (is_there()) {
    if (Clock::now() > until)
      throw Error(fmt::format("TensorBoard instance '{}' is being deleted, but its volume or pods still exist", name));
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace adaptdl::kube
