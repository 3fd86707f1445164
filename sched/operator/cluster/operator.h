// The scheduler of a Kubernetes cluster: allocates nodes to AdaptDLJobs, creates the pods of their replicas, and
// answers the requests of the replicas.
//
//   watches      keep the jobs, pods, nodes and devices of the cluster in a cache (ClusterState)
//   allocator    allocates nodes to new jobs immediately, and to all jobs in each cycle
//   workers      reconcile jobs, each worker one job at a time (Controller)
//   supervisor   sends replicas the addresses of their peers, and receives the replicas' hints
//   metrics      are available to Prometheus on a separate port
//   validator    rejects invalid jobs when they are submitted or changed
//   expander     makes a cluster autoscaler add and remove nodes
//   recorder     stores the usage of jobs by user and month
//
// All state is stored in the cluster. An operator may exit at any time; the next one continues its work. If there are
// several operators, only the holder of a lease acts, and the others keep their caches up to date.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/api/client.h"
#include "kube/api/watch.h"
#include "operator/cluster/cluster_state.h"
#include "operator/cluster/controller.h"
#include "operator/cluster/expander.h"
#include "operator/cluster/leader_election.h"
#include "operator/cluster/metrics.h"
#include "operator/cluster/usage_recorder.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/replica_pod.h"
#include "operator/jobs/replica_reports.h"
#include "operator/nodes/node_facts.h"
#include "operator/validator/validator.h"
#include "policy/policies.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {

struct OperatorOptions {
  std::string address = "0.0.0.0";            // IP address that all servers listen on
  std::uint16_t port = 8080;                  // 0: any free port
  std::optional<std::uint16_t> metrics_port;  // port of GET /metrics at the same address; empty: not served
  std::string policy;                         // empty: the default policy
  PolicyOptions policy_options;
  std::chrono::milliseconds interval = std::chrono::minutes(1);  // between scheduling cycles
  int workers = 8;
  PodSettings pods;  // an empty supervisor_url means the address and port above
  LifecycleSettings lifecycle;
  DrainSigns drain;
  // With a lease, only the operator that holds it acts. `lease_lost` must end the process immediately
  // (leader_election.h).
  std::optional<LeaseSettings> lease;
  std::function<void()> lease_lost;
  std::optional<ValidatorSettings> validator;
  // Namespace of the ConfigMaps with the usage of jobs, and the prefix of their names (usage_recorder.h). If the prefix
  // is empty, usage is not recorded.
  std::pair<std::string, std::string> usage;
  std::optional<ExpanderSettings> expander;  // requires a policy that chooses the size of the cluster
  // The operator's pod (namespace and name), which has the label adaptdl/leader while the operator acts; may be empty.
  std::pair<std::string, std::string> pod;
};

class Operator final : private SupervisorListener {
 public:
  // Starts to listen. Throws UsageError if the policy or the address is invalid, or the policy cannot be used with an
  // expander, and Error if the socket cannot be opened. The client must outlive the operator.
  Operator(kube::Client& client, OperatorOptions options);
  ~Operator() override;

  // Runs until a stop is requested. Throws Error if a watch fails permanently: the cluster does not have the resource
  // AdaptDLJob, or the operator lacks a permission.
  void run(std::stop_token stop);

 private:
  using Clock = std::chrono::steady_clock;

  void hints_changed(const std::string& job_id) override { queue_.add(job_id); }
  void foreign_discovers(const std::string&) override {}
  void replica_waits(const std::string& job_id, const std::string& replica_id, int after, bool broken) override {
    if (reports_.waits(job_id, replica_id, after, broken)) queue_.add(job_id);
  }
  void member_follows(const std::string& job_id, int after) override {
    if (reports_.follows(job_id, after)) queue_.add(job_id);
  }

  // Reports are ignored here, because the supervisor turns the relevant parts of them into hints.
  void progress_reported(const std::string&, const std::string&, const nlohmann::json&) override {}

  // Calls `work`. The first exception is stored and stops all threads.
  void guard(std::stop_source ends, const std::function<void()>& work);
  bool wait_until_synced(std::stop_token stop);
  bool lead(std::stop_token stop);
  bool label_pod(const std::string& name, bool leads);
  void label_own_pod(bool leads);
  ClusterState::HintsOf newest_hints() const;
  std::string metrics_text();
  void watch(const kube::Resource& resource, std::stop_token stop);
  void set_synced(const kube::Resource& resource);
  bool is_synced(const kube::Resource& resource);
  void watch_devices(const kube::Resource& resource, std::stop_token stop);
  void apply(const kube::Resource& resource, const kube::Change& change);
  void work(std::stop_token stop);
  Clock::time_point first_cycle() const;
  void allocate(std::stop_token stop);
  void allocate_once(bool all);
  void record_usage();
  bool wait_for_work(std::stop_token stop, Clock::time_point cycle);
  void add(const std::vector<std::string>& keys);
  void wake_allocator();

  kube::Client& client_;
  OperatorOptions options_;
  Allocator allocator_;
  ClusterState state_;
  WorkQueue queue_;
  ReplicaReportStore reports_;
  std::unique_ptr<Supervisor> supervisor_;
  OperatorMetrics metrics_;
  std::atomic<bool> leads_ = false;
  std::unique_ptr<Controller> controller_;
  std::string metrics_text_;         // used by the thread of metrics_server_ only
  Clock::time_point metrics_until_;  // the time until which this text is served; used by the same thread only
  std::unique_ptr<Supervisor> metrics_server_;
  // Used by the allocator's thread only: the time at which a leaving node last caused a cycle, and the time at which it
  // causes the next one.
  Clock::time_point moved_ = Clock::time_point::min(), move_again_ = Clock::time_point::max();

  // Used by the allocator's thread only.
  std::optional<Expander> expander_;
  std::optional<UsageRecorder> recorder_;
  std::set<std::string> surplus_;  // surplus nodes of the last cycle

  std::unique_ptr<Validator> validator_;
  std::unique_ptr<LeaderElection> election_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any wake_;
  std::set<std::string_view> synced_;  // kinds whose existing objects have all been reported
  bool changed_ = false;               // whether something changed since the allocator last ran
  std::exception_ptr failure_;
};

}  // namespace adaptdl::sched
