// The nodes of a simulated cluster, and the properties of allocations on them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "policy/base/policy.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

// The resource of which each replica uses one unit.
inline constexpr char kGpu[] = "nvidia.com/gpu";

class Cluster {
 public:
  explicit Cluster(const SimulationOptions& options);

  const std::vector<NodeInfo>& nodes() const noexcept { return nodes_; }
  // Returns a node that could be added, or nullopt if the size is fixed.
  std::optional<NodeInfo> node_template() const;
  int gpus() const noexcept { return gpus_; }  // number of GPUs at the cluster's largest size
  // Speeds by GPU type, relative to the GPU in the traces. Types with speed 1 are omitted.
  const std::map<std::string, double>& gpu_speed() const noexcept { return gpu_speed_; }

  // Returns the number of replicas on each node, in the order of the allocation.
  static std::vector<int> placement(const Allocation& allocation);
  // Returns the speed of the slowest GPU. REQUIRES that all nodes in the allocation exist, as check() ensures.
  double speed(const Allocation& allocation) const;
  // Returns the price of the allocation per hour, according to its share of each node's GPUs. REQUIRES the same
  // conditions as speed().
  double price(const Allocation& allocation) const;
  // Returns the price of all nodes per hour.
  double price() const;

  // Throws Error, naming the policy, if the allocations use more GPUs than the nodes have.
  void check(const Allocations& allocations, const std::string& policy) const;

  // Returns the nodes with replicas of more than one distributed job. Such jobs slow each other down there.
  static std::set<std::string> contended(const Allocations& allocations);

  // Moves the number of nodes toward `desired_nodes`, within the autoscaling range. New nodes are available
  // immediately, and the last nodes are removed as long as they are idle. Does nothing if the size is fixed.
  void resize(int desired_nodes, const Allocations& allocations);

 private:
  std::vector<NodeInfo> nodes_;
  std::vector<NodeInfo> all_;                 // all nodes at the largest size; nodes_ contains the first ones
  std::vector<double> prices_;                // prices of the nodes in all_
  std::map<std::string, std::size_t> index_;  // indices into all_, by name
  std::map<std::string, double> gpu_speed_;
  std::optional<Autoscale> autoscale_;
  int gpus_ = 0;
};

}  // namespace adaptdl::sched
