// Reconciles jobs: computes a plan for a job (lifecycle.h) and carries it out through the API server.
//
// Threading: sync() may be called concurrently for different jobs; all other methods may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/client.h"
#include "operator/base/work_queue.h"
#include "operator/cluster/cluster_state.h"
#include "operator/cluster/metrics.h"
#include "operator/jobs/hint_pace.h"
#include "operator/jobs/lifecycle.h"
#include "operator/jobs/replica_pod.h"
#include "operator/jobs/replica_reports.h"
#include "supervisor/supervisor.h"

namespace adaptdl::sched {

class Controller {
 public:
  // All arguments must outlive the controller.
  Controller(kube::Client& client, ClusterState& state, WorkQueue& queue, Supervisor& supervisor,
             ReplicaReportStore& reports, OperatorMetrics& metrics, const PodSettings& pods,
             const LifecycleSettings& lifecycle)
      : client_(client),
        state_(state),
        queue_(queue),
        supervisor_(supervisor),
        reports_(reports),
        metrics_(metrics),
        pods_(pods),
        lifecycle_(lifecycle) {}

  // Reconciles the job, which may have been deleted. If reconciling fails, the job is queued again.
  void sync(const std::string& key);

  // Records that replicas report to this operator from now on. Must be called before sync().
  void lead() { leads_since_ = std::chrono::system_clock::now(); }

  // Registers the job with the supervisor.
  void announce(const std::string& key);

  // Stores the allocator's decision and queues the job with this priority.
  void decide(const std::string& key, JobDecision decision, WorkQueue::Priority priority);
  // Returns the nodes of a decision that is not in the job's status yet; empty if there is no such decision.
  std::optional<Allocation> undone(const std::string& key) const;
  // Returns the newest hints of the job with this uid; empty if they are not known.
  nlohmann::json hints(const std::string& key, const std::string& uid) const;

 private:
  struct Memory {
    std::string uid, token;
    std::optional<JobDecision> decision;
    std::uint64_t decisions = 0;  // number of decisions so far
    int failures = 0;             // consecutive failed calls of sync()
    std::string create_error;     // cause of the last failed creation that an event reported
  };

  bool advance(const std::string& key);
  bool hints_must_wait(const std::string& key, const nlohmann::json& job, const nlohmann::json& status);
  bool pods_are_as_known(const ClusterState::JobView& view);
  bool create_missing(const std::string& key, JobSituation& situation, const std::vector<int>& missing,
                      const std::string& token);
  void report_create_error(const std::string& key, const nlohmann::json& job, const std::string& cause,
                           const std::string& message);
  void supervise(const std::string& key, const ClusterState::JobView& view, const Plan& plan);
  void forget(const std::string& key);
  std::string token_of(const std::string& key, const ClusterState::JobView& view);
  void write_status(const nlohmann::json& job, const nlohmann::json& status);
  void remove_pod(const std::string& name_space, const PodRemoval& removal);
  std::optional<PodRefusal> create_pod(const nlohmann::json& job, int number, const std::string& token);
  void set_rank(const std::string& name_space, const PodRank& rank);
  void write_event(const nlohmann::json& job, const JobEvent& event);

  kube::Client& client_;
  ClusterState& state_;
  WorkQueue& queue_;
  Supervisor& supervisor_;
  ReplicaReportStore& reports_;
  OperatorMetrics& metrics_;
  const PodSettings& pods_;
  const LifecycleSettings& lifecycle_;
  std::atomic<kube::Time> leads_since_{kube::Time()};
  HintPace hint_pace_{std::chrono::milliseconds(100)};
  mutable std::mutex mutex_;
  std::map<std::string, Memory> memory_;  // by key of the job
};

}  // namespace adaptdl::sched
