// The scheduler of a Kubernetes cluster: allocates nodes to AdaptDLJobs, creates the pods of their replicas, and serves
// what the replicas ask.
//
//   watches      jobs, pods and nodes of the whole cluster, into the ClusterState
//   allocator    decides which job gets which nodes: at once for a new job, each cycle for all
//   workers      bring one job at a time forward (Controller)
//   supervisor   answers the replicas: who their peers are, and takes their hints
//
// All state is in the cluster. An operator that ends at any moment is followed by one that continues.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/watch.h"
#include "operator/cluster_state.h"
#include "operator/controller.h"
#include "operator/lifecycle.h"
#include "operator/replica_pod.h"
#include "policy/policies.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {

struct OperatorOptions {
  std::string address = "0.0.0.0";  // that the supervisor listens on
  std::uint16_t port = 8080;        // 0: a free one
  std::string policy;               // empty: the default one
  PolicyOptions policy_options;
  std::chrono::milliseconds interval = std::chrono::minutes(1);  // between cycles
  int workers = 8;
  PodSettings pods;  // without a supervisor_url: the address and port above
  LifecycleSettings lifecycle;
};

class Operator final : private SupervisorListener {
 public:
  // Listens. Throws UsageError on a wrong policy or address, and Error if the system refuses the socket. The client
  // must outlive it.
  Operator(kube::Client& client, OperatorOptions options);
  ~Operator() override;

  // Until a stop is requested. Throws what ends the watches: Error if the cluster has no AdaptDLJobs, or permits the
  // operator too little.
  void run(std::stop_token stop);

 private:
  void hints_changed(const std::string& job_id) override { queue_.add(job_id); }
  void foreign_discovers(const std::string&) override {}
  void replica_waits(const std::string&, const std::string&, int, bool) override {}

  // Ends all of it with the first exception of a part.
  void guard(std::stop_source ends, const std::function<void()>& work);
  bool wait_until_synced(std::stop_token stop);
  void watch(const kube::Resource& resource, std::stop_token stop);
  void apply(const kube::Resource& resource, const kube::Change& change);
  void work(std::stop_token stop);
  void allocate(std::stop_token stop);
  void allocate_once(bool all);
  bool wait_for_work(std::stop_token stop, std::chrono::steady_clock::time_point cycle);
  void add(const std::vector<std::string>& keys);
  void wake_allocator();

  kube::Client& client_;
  OperatorOptions options_;
  Allocator allocator_;
  ClusterState state_;
  WorkQueue queue_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Controller> controller_;

  std::mutex mutex_;  // of what follows
  std::condition_variable_any wake_;
  int synced_ = 0;        // watches that have told all there is
  bool changed_ = false;  // since the allocator looked
  std::exception_ptr failure_;
};

}  // namespace adaptdl::sched
