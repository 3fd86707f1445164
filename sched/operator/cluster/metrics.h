// The operator's metrics for Prometheus. docs/operator.md lists them.
//
// Counters and histograms begin at 0 when the operator starts. Gauges are computed when they are read.
//
// Threading: all methods may be called from any thread.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "kube/api/timestamp.h"
#include "operator/base/prometheus_text.h"
#include "operator/cluster/cluster_state.h"

namespace adaptdl::sched {

class OperatorMetrics {
 public:
  // Records that the operator has written a job's status. `before` and `after` are complete job objects.
  void status_written(const nlohmann::json& before, const nlohmann::json& after);
  // Records that a scheduling cycle has ended, and how long it took.
  void cycle_ended(std::chrono::duration<double> time, kube::Time now);

  // Records the decision of a scheduling cycle on the size of the pool of nodes.
  void pool_sized(const PoolDecision& decision);

  // Returns all metrics in Prometheus' text format. `cluster` is a snapshot of `state`.
  std::string text(const ClusterState& state, const AllocatorCluster& cluster) const;
  // Returns the metrics of an operator that is waiting to become the leader. Only the leader reports the cluster's
  // metrics.
  static std::string standby_text();

 private:
  void add_counters(PrometheusText& text) const;

  mutable std::mutex mutex_;
  double submissions_ = 0;
  std::map<std::string, double> restarts_;                             // by reason
  std::map<std::pair<std::string, std::string>, double> completions_;  // by phase and reason
  Histogram completion_times_{{60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600, 168 * 3600}};
  Histogram cycles_{{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30}};
  std::optional<double> last_cycle_;  // seconds since 1970
  std::optional<PoolDecision> pool_;
};

}  // namespace adaptdl::sched
