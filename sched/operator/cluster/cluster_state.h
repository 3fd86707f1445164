// Caches jobs, pods, nodes and devices from watches and API responses. Stale or deleted jobs and pods are ignored.
//
// The response to the creation of an object may arrive after the watch has reported its deletion, so the uids of
// deleted objects are remembered.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kube/jobs/usage_ledger.h"
#include "operator/cluster/allocator.h"
#include "operator/jobs/pod_facts.h"
#include "operator/jobs/replica_pod.h"
#include "operator/nodes/device_inventory.h"
#include "operator/nodes/node_facts.h"
#include "operator/nodes/node_price.h"

namespace adaptdl::sched {

class ClusterState {
 public:
  explicit ClusterState(DrainSigns signs = {}) : signs_(std::move(signs)) {}

  // A job and the pods that it owns.
  struct JobView {
    nlohmann::json job;
    std::vector<PodFacts> pods;
  };

  // Each of these methods returns the key (namespace/name) of the affected job, or an empty string if there is none.
  std::string put_job(const nlohmann::json& object);
  std::string drop_job(const nlohmann::json& object, kube::Time now = std::chrono::system_clock::now());
  std::string put_pod(const nlohmann::json& object);
  std::string drop_pod(const nlohmann::json& object);
  // Each of these methods returns the keys of the affected jobs.
  std::vector<std::string> put_node(const nlohmann::json& object);
  std::vector<std::string> drop_node(const nlohmann::json& object);
  // The four methods below call put(), drop(), replace() and complete_node() of the DeviceInventory.
  std::string put_device_object(const kube::Resource& resource, const nlohmann::json& object);
  void drop_device_object(const kube::Resource& resource, const nlohmann::json& object);
  std::vector<std::string> replace_device_objects(const kube::Resource& resource,
                                                  const std::vector<nlohmann::json>& objects);
  void complete_node(Resources& resources) const;

  std::optional<JobView> job(const std::string& key) const;
  // A node is considered gone once it has had no Node object for this long. If the object was deleted by mistake, the
  // pods are still running, and the kubelet creates the object again.
  static constexpr std::chrono::seconds kMissingBeforeGone{40};
  NodeState node_state(const std::string& name, kube::Time now);
  // Returns the node's label kubernetes.io/hostname, which may differ from its name; empty if there is no such label.
  std::string hostname(const std::string& node) const;
  // Returns the usage rate of a job if its replicas run on these nodes.
  UsageRate usage_rate(const nlohmann::json& job, const Allocation& nodes, const PodSettings& settings,
                       const std::vector<NodePrice>& prices) const;
  // Returns the keys of all jobs.
  std::vector<std::string> jobs() const;
  // Returns the usage of all existing jobs.
  std::vector<kube::UsageRecord> usage() const;
  // For the jobs that were deleted since the last call, returns the usage up to their deletion. Only the last 10,000
  // deleted jobs are kept.
  std::vector<kube::UsageRecord> take_deleted_usage();
  // Returns the hints of a job (namespace/name) that are newer than those in its status; empty if there are none.
  using HintsOf = std::function<nlohmann::json(const std::string& job, const std::string& uid)>;
  // Returns a snapshot for the allocator. `settings` determine the pods that would be created for the jobs.
  AllocatorCluster cluster(const PodSettings& settings, kube::Time now, const HintsOf& hints = {}) const;

 private:
  // Below, the id of a job is namespace/uid.
  struct Pod {
    std::string version, job, node;  // job: id of the job to which the replica's pod belongs, or empty
    Resources requests;              // without the devices that its claims request
    nlohmann::json claims;           // the parts of the pod that determine its claims; null without claims
    bool holds = false;              // whether the pod holds its requests, because it has not ended
    PodFacts facts;                  // only set for pods of jobs
  };
  struct JobEntry {
    nlohmann::json object;
    std::string id;
  };
  bool was_deleted(const std::string& uid) const { return deleted_.contains(uid); }
  NodeFacts with_devices(NodeFacts node) const;
  Resources requests_of(const nlohmann::json& pod, bool is_new) const;
  void remember_deleted(const std::string& uid);
  void leave_job(const std::string& pod_uid, const std::string& job);
  std::string key_of_id(const std::string& id) const;
  std::vector<std::string> jobs_on(const std::string& node) const;

  const DrainSigns signs_;
  mutable std::mutex mutex_;
  std::map<std::string, JobEntry> jobs_;                      // by namespace/name
  std::map<std::string, std::string> key_by_id_;              // keys of jobs, by job id
  std::map<std::string, Pod> pods_;                           // by uid of the pod
  std::map<std::string, std::set<std::string>> pods_by_job_;  // uids of pods, by job id
  std::map<std::string, NodeFacts> nodes_;                    // by node name, without the devices in devices_
  DeviceInventory devices_;
  std::map<std::string, kube::Time> missing_since_;  // by node name: the time since which the node has had no object
  std::set<std::string> deleted_;                    // uids of deleted objects
  std::deque<std::string> deleted_order_;
  std::vector<kube::UsageRecord> deleted_usage_;
};

}  // namespace adaptdl::sched
