// The cluster as the watches and the operator's own calls report it: jobs, pods and nodes.
//
// An object that comes later than a newer version of it is passed over. So is one that was deleted: the answer to a
// call may arrive after the watch has reported the end of what was created.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/allocator.h"
#include "operator/node_facts.h"
#include "operator/pod_facts.h"
#include "operator/replica_pod.h"

namespace adaptdl::sched {

class ClusterState {
 public:
  // A job and the pods that it owns.
  struct JobView {
    nlohmann::json job;
    std::vector<PodFacts> pods;
  };

  // Each returns the key, namespace/name, of the job that is concerned; empty: none.
  std::string put_job(const nlohmann::json& object);
  std::string drop_job(const nlohmann::json& object);
  std::string put_pod(const nlohmann::json& object);
  std::string drop_pod(const nlohmann::json& object);
  // Returns the jobs that are concerned.
  std::vector<std::string> put_node(const nlohmann::json& object);
  std::vector<std::string> drop_node(const nlohmann::json& object);

  std::optional<JobView> job(const std::string& key) const;
  // A node that has no object is gone after a while only: an object that was deleted by mistake is created again by its
  // node, whose pods still run.
  static constexpr std::chrono::seconds kMissingBeforeGone{40};
  NodeState node_state(const std::string& name, kube::Time now);
  // Its label kubernetes.io/hostname, which may be other than its name. Empty if there is none.
  std::string hostname(const std::string& node) const;
  // The keys of all jobs.
  std::vector<std::string> jobs() const;
  // For the allocator. `settings` makes the pods of jobs as they would be created.
  AllocatorCluster cluster(const PodSettings& settings, kube::Time now) const;

 private:
  struct Pod {
    std::string version, job_uid, node;  // job_uid: empty if it is no job's
    Resources requests;
    bool holds = false;  // its requests: it has not ended
    PodFacts facts;      // of a job's pod
  };
  struct JobEntry {
    nlohmann::json object;
    std::string uid;
  };
  bool was_deleted(const std::string& uid) const { return deleted_.contains(uid); }
  void remember_deleted(const std::string& uid);
  void leave_job(const std::string& pod_uid, const std::string& job_uid);
  std::string key_of_uid(const std::string& uid) const;
  std::vector<std::string> jobs_on(const std::string& node) const;

  mutable std::mutex mutex_;
  std::map<std::string, JobEntry> jobs_;                      // by namespace/name
  std::map<std::string, std::string> key_by_uid_;             // of jobs
  std::map<std::string, Pod> pods_;                           // by uid
  std::map<std::string, std::set<std::string>> pods_by_job_;  // uids of pods, by uid of the job
  std::map<std::string, NodeFacts> nodes_;                    // by name
  std::map<std::string, kube::Time> missing_since_;           // nodes that were asked for
  std::set<std::string> deleted_;                             // uids
  std::deque<std::string> deleted_order_;
};

}  // namespace adaptdl::sched
