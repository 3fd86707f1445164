#include "operator/cluster/cluster_state.h"

#include <algorithm>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"
#include "kube/api/json_fields.h"
#include "kube/api/resource.h"
#include "kube/jobs/job.h"
#include "operator/jobs/job_status.h"
#include "operator/jobs/lifecycle.h"
#include "policy/base/job_hints.h"

namespace adaptdl::sched {
namespace {

using kube::field;
using kube::text_field;
using nlohmann::json;

constexpr std::size_t kMaxDeleted = 100'000, kMaxDeletedUsage = 10'000;

std::string key_of(const json& object) {
  return text_field(object, {"metadata", "namespace"}) + '/' + text_field(object, {"metadata", "name"});
}

std::string uid_of(const json& object) { return text_field(object, {"metadata", "uid"}); }
std::string version_of(const json& object) { return text_field(object, {"metadata", "resourceVersion"}); }

// Owner references have no namespace, because an owner is in the same namespace as the object.
std::string job_id(const json& object, const std::string& uid) {
  return uid.empty() ? "" : text_field(object, {"metadata", "namespace"}) + '/' + uid;
}
std::string id_of(const json& job) { return job_id(job, uid_of(job)); }
// Returns the id of the job to which a replica's pod belongs; empty if the pod is not a replica.
std::string job_of(const json& pod) { return job_id(pod, text_field(owner_of(pod), {"uid"})); }

double seconds_of(kube::Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Returns the pod that would be created for a replica of the job.
json replica_pod(const json& job, const PodSettings& settings) {
  try {
    return make_replica_pod(job, {}, settings);
  } catch (const Error&) {
    return field(job, {"spec", "template"});  // the error is reported when the pods are created
  }
}

// Returns the parts of a pod that determine its claims, or null if it has no claims.
json claims_of(const json& pod) {
  const json& claims = field(pod, {"spec", "resourceClaims"});
  if (claims.empty()) return nullptr;
  return {{"metadata", {{"namespace", text_field(pod, {"metadata", "namespace"})}}},
          {"spec", {{"resourceClaims", claims}}}};
}

// Returns the job for the allocator, without `info.resources`.
AllocatorJob to_allocator_job(const kube::Job& job, const json& object, const PodSettings& settings, kube::Time now) {
  AllocatorJob each;
  JobInfo& info = each.info;
  info.name = job.name_space + '/' + job.name;
  each.pod = replica_pod(object, settings);
  info.min_replicas = std::max(job.min_replicas.value_or(0), 0);
  info.max_replicas = std::clamp(job.max_replicas.value_or(kMaxReplicasPerJob), 1, kMaxReplicasPerJob);
  info.preemptible = job.preemptible;
  info.creation_time = seconds_of(job.created.value_or(now));
  info.attained_service = attained_service(object, now);
  info.num_restarts = std::max(job.group.value_or(0), 0);
  if (job.train.is_object()) {
    // Another client may have written the status. Invalid hints must not stop the scheduling of other jobs.
    try {
      check_sched_hints(job.train);
      apply_hints(job.train, info);
    } catch (const std::exception&) {
      info.speedup = nullptr;
    }
  }
  each.current = job.allocation;
  const auto hold = retry_after(object);
  each.held = hold && *hold > now && (job.phase == "Pending" || job.phase == "Stopping");
  each.uid = job.uid;
  each.waits_for_first_fit = waits_for_first_fit(job);
  return each;
}

// Clears an allocation that exceeds both the job's maximum and the number of its pods: another client must have written
// it.
void drop_foreign_allocation(AllocatorJob& job) {
  const auto max = static_cast<std::size_t>(std::max(job.info.max_replicas, job.info.min_replicas));
  std::size_t live = 0;
  for (const auto& [node, count] : job.live) live += static_cast<std::size_t>(count);
  if (job.current.size() > std::max(max, live)) job.current.clear();
}

}  // namespace

std::string ClusterState::put_job(const json& object) {
  const std::lock_guard lock(mutex_);
  const std::string key = key_of(object), id = id_of(object);
  if (was_deleted(uid_of(object))) return "";
  JobEntry& entry = jobs_[key];
  if (entry.id == id && kube::is_older_version(version_of(object), version_of(entry.object))) return "";
  if (entry.id != id) key_by_id_.erase(entry.id);
  entry = {object, id};
  // No code reads managedFields, and the field grows with the status.
  if (json& metadata = entry.object["metadata"]; metadata.is_object()) metadata.erase("managedFields");
  key_by_id_[id] = key;
  return key;
}

std::string ClusterState::drop_job(const json& object, kube::Time now) {
  const std::lock_guard lock(mutex_);
  const std::string key = key_of(object), id = id_of(object);
  remember_deleted(uid_of(object));
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.id != id) return "";
  kube::UsageRecord& record = deleted_usage_.emplace_back(kube::parse_usage_record(found->second.object));
  record.usage.release(now);
  if (deleted_usage_.size() > kMaxDeletedUsage) deleted_usage_.erase(deleted_usage_.begin());
  jobs_.erase(found);
  key_by_id_.erase(id);
  return key;
}

std::string ClusterState::put_pod(const json& object) {
  const std::lock_guard lock(mutex_);
  const std::string uid = uid_of(object);
  if (was_deleted(uid)) return "";
  Pod& pod = pods_[uid];
  if (kube::is_older_version(version_of(object), pod.version)) return "";
  const std::string phase = text_field(object, {"status", "phase"});
  pod.version = version_of(object);
  const std::string left = pod.job;
  pod.job = job_of(object);
  if (pod.job != left) leave_job(uid, left);
  pod.node = text_field(object, {"spec", "nodeName"});
  pod.requests = pod_requests(object);
  pod.claims = claims_of(object);
  pod.holds = phase != "Succeeded" && phase != "Failed";
  if (pod.job.empty()) return key_of_id(left);
  pod.facts = parse_pod(object);
  pods_by_job_[pod.job].insert(uid);
  return key_of_id(pod.job);
}

std::string ClusterState::drop_pod(const json& object) {
  const std::lock_guard lock(mutex_);
  const std::string uid = uid_of(object);
  remember_deleted(uid);
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return "";
  const std::string job = found->second.job;
  pods_.erase(found);
  leave_job(uid, job);
  return key_of_id(job);
}

void ClusterState::leave_job(const std::string& pod_uid, const std::string& job) {
  const auto owned = pods_by_job_.find(job);
  if (owned == pods_by_job_.end()) return;
  owned->second.erase(pod_uid);
  if (owned->second.empty()) pods_by_job_.erase(owned);
}

std::vector<std::string> ClusterState::put_node(const json& object) {
  const std::lock_guard lock(mutex_);
  NodeFacts node = parse_node(object, signs_);
  const std::string name = node.name;
  missing_since_.erase(name);
  const auto [entry, added] = nodes_.try_emplace(name);
  const bool changed = added || entry->second.ready != node.ready;
  entry->second = std::move(node);
  return changed ? jobs_on(name) : std::vector<std::string>();
}

std::vector<std::string> ClusterState::drop_node(const json& object) {
  const std::lock_guard lock(mutex_);
  const std::string name = kube::name_of(object);
  nodes_.erase(name);
  return jobs_on(name);
}

std::string ClusterState::put_device_object(const kube::Resource& resource, const json& object) {
  const std::lock_guard lock(mutex_);
  return devices_.put(resource, object);
}

void ClusterState::drop_device_object(const kube::Resource& resource, const json& object) {
  const std::lock_guard lock(mutex_);
  devices_.drop(resource, object);
}

std::vector<std::string> ClusterState::replace_device_objects(const kube::Resource& resource,
                                                              const std::vector<json>& objects) {
  const std::lock_guard lock(mutex_);
  return devices_.replace(resource, objects);
}

void ClusterState::complete_node(Resources& resources) const {
  const std::lock_guard lock(mutex_);
  devices_.complete_node(resources);
}

std::optional<ClusterState::JobView> ClusterState::job(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return {};
  JobView view{found->second.object, {}};
  if (const auto owned = pods_by_job_.find(found->second.id); owned != pods_by_job_.end()) {
    for (const std::string& uid : owned->second) view.pods.push_back(pods_.at(uid).facts);
  }
  return view;
}

NodeState ClusterState::node_state(const std::string& name, kube::Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(name);
  if (found != nodes_.end()) {
    const NodeFacts& node = found->second;
    if (!node.ready) return NodeState::kNotReady;
    if (!node.leaving.empty()) return NodeState::kLeaving;
    return accepts_pods(node) ? NodeState::kReady : NodeState::kCordoned;
  }
  // Node names are never longer than this, but another client may have written a longer one into a job.
  constexpr std::size_t kMaxNodeName = 253;
  if (name.size() > kMaxNodeName) return NodeState::kGone;
  const auto [missing, first] = missing_since_.try_emplace(name, now);
  return now - missing->second < kMissingBeforeGone ? NodeState::kNotReady : NodeState::kGone;
}

std::string ClusterState::hostname(const std::string& node) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? std::string() : text_field(found->second.labels, {"kubernetes.io/hostname"});
}

UsageRate ClusterState::usage_rate(const json& job, const Allocation& nodes, const PodSettings& settings,
                                   const std::vector<NodePrice>& prices) const {
  const json pod = replica_pod(job, settings);
  const std::lock_guard lock(mutex_);
  std::map<std::string, NodeFacts> used;
  for (const std::string& name : nodes) {
    if (const auto node = nodes_.find(name); node != nodes_.end() && !used.contains(name))
      used.emplace(name, with_devices(node->second));
  }
  return sched::usage_rate(requests_of(pod, false), nodes, used, prices);
}

std::vector<std::string> ClusterState::jobs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, entry] : jobs_) keys.push_back(key);
  return keys;
}

std::vector<kube::UsageRecord> ClusterState::usage() const {
  const std::lock_guard lock(mutex_);
  std::vector<kube::UsageRecord> records;
  for (const auto& [key, entry] : jobs_) records.push_back(kube::parse_usage_record(entry.object));
  return records;
}

std::vector<kube::UsageRecord> ClusterState::take_deleted_usage() {
  const std::lock_guard lock(mutex_);
  return std::exchange(deleted_usage_, {});
}

AllocatorCluster ClusterState::cluster(const PodSettings& settings, kube::Time now, const HintsOf& hints) const {
  const std::lock_guard lock(mutex_);
  AllocatorCluster cluster;
  cluster.now = seconds_of(now);
  std::map<std::string, std::size_t> index;  // index into cluster.jobs, by job id
  std::vector<bool> stopping;                // by index into cluster.jobs
  for (const auto& [key, entry] : jobs_) {
    kube::Job job = kube::parse_job(entry.object);
    // No decisions are made for these jobs. Their remaining pods are treated like pods of other workloads that will end
    // soon.
    if (job.ended() || job.deleted || job.suspend) continue;
    // In large clusters, the hints in the status may be minutes old.
    if (json newest = hints ? hints(key, job.uid) : json(); !newest.empty()) job.train = std::move(newest);
    index[entry.id] = cluster.jobs.size();
    AllocatorJob& added = cluster.jobs.emplace_back(to_allocator_job(job, entry.object, settings, now));
    added.info.resources = requests_of(added.pod, added.current.empty());
    stopping.push_back(job.phase == "Stopping");
  }
  for (const auto& [name, node] : nodes_) cluster.nodes.push_back(with_devices(node));
  for (const auto& [uid, pod] : pods_) {
    if (!pod.holds || pod.node.empty()) continue;
    if (const auto found = index.find(pod.job); found != index.end()) {
      AllocatorJob& job = cluster.jobs[found->second];
      ++job.live[pod.node];
      Resources requests = pod.requests;
      devices_.complete_requests(pod.claims, false, requests);
      job.requests[pod.node] += requests;
      // The job cannot start elsewhere until the pod has ended, which the pod's node cannot confirm.
      const auto node = nodes_.find(pod.node);
      if (stopping[found->second] && (node == nodes_.end() || !node->second.ready)) job.held = true;
    } else {
      cluster.used[pod.node] += pod.requests;
      if (pod.job.empty()) continue;
      Resources requests = pod.requests;
      devices_.complete_requests(pod.claims, false, requests);
      cluster.released_soon[pod.node] += requests;
    }
  }
  for (AllocatorJob& job : cluster.jobs) drop_foreign_allocation(job);
  const auto owner = [&](const std::string& uid) {
    const auto pod = pods_.find(uid);
    if (pod == pods_.end()) return DeviceInventory::Owner::kUnknownPod;
    return index.contains(pod->second.job) ? DeviceInventory::Owner::kReplica : DeviceInventory::Owner::kOtherPod;
  };
  // The amounts are not added up, because devices that other pods request by the name of an extended resource are in
  // the pods' requests and in claims alike.
  for (const auto& [node, devices] : devices_.allocated(owner)) {
    for (const auto& [resource, amount] : devices) {
      std::int64_t& used = cluster.used[node][resource];
      used = std::max(used, amount);
    }
  }
  return cluster;
}

// Returns the node with its published devices. If a device plugin provides the same resource, only the plugin's devices
// are counted. The Kubernetes scheduler does the same.
NodeFacts ClusterState::with_devices(NodeFacts node) const {
  const auto found = devices_.by_node().find(node.name);
  if (found == devices_.by_node().end()) return node;
  for (const auto& [resource, amount] : found->second) {
    std::int64_t& here = node.allocatable[resource];
    if (here == 0) here = amount;
  }
  if (node.gpu_type.empty()) node.gpu_type = devices_.product(node.name);
  return node;
}

Resources ClusterState::requests_of(const json& pod, bool is_new) const {
  Resources requests = pod_requests(pod);
  devices_.complete_requests(pod, is_new, requests);
  return requests;
}

void ClusterState::remember_deleted(const std::string& uid) {
  if (!deleted_.insert(uid).second) return;
  deleted_order_.push_back(uid);
  if (deleted_order_.size() <= kMaxDeleted) return;
  deleted_.erase(deleted_order_.front());
  deleted_order_.pop_front();
}

std::string ClusterState::key_of_id(const std::string& id) const {
  const auto found = key_by_id_.find(id);
  return found == key_by_id_.end() ? std::string() : found->second;
}

std::vector<std::string> ClusterState::jobs_on(const std::string& node) const {
  std::set<std::string> keys;
  for (const auto& [key, entry] : jobs_) {
    const auto& allocation = kube::array_field(entry.object, {"status", "allocation"});
    if (std::ranges::find(allocation, json(node)) != allocation.end()) keys.insert(key);
  }
  for (const auto& [uid, pod] : pods_) {
    if (pod.node == node && !pod.job.empty()) keys.insert(key_of_id(pod.job));
  }
  keys.erase("");
  return {keys.begin(), keys.end()};
}

}  // namespace adaptdl::sched
