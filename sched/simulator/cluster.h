// The nodes of a simulated cluster, and what allocations mean on them.
//
// Threading: for one thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

// The resource of which each replica takes one.
inline constexpr char kGpu[] = "nvidia.com/gpu";

class Cluster {
 public:
  explicit Cluster(const SimulationOptions& options);

  const std::vector<NodeInfo>& nodes() const noexcept { return nodes_; }
  // Returns a node that could be added, or nothing if the size is fixed.
  std::optional<NodeInfo> node_template() const;
  int gpus() const noexcept { return gpus_; }  // of all nodes at the cluster's largest size
  // Speeds by GPU type, relative to the traces, without types of speed 1.
  const std::map<std::string, double>& gpu_speed() const noexcept { return gpu_speed_; }

  // Returns the number of replicas on each node, in the order of the allocation.
  static std::vector<int> placement(const Allocation& allocation);
  // Returns the speed of the slowest GPU. REQUIRES that all nodes of the allocation exist, as check() ensures.
  double speed(const Allocation& allocation) const;
  // Returns the price of the allocation per hour, by its share of each node's GPUs. REQUIRES the same as speed().
  double price(const Allocation& allocation) const;
  // Returns the price of all nodes per hour.
  double price() const;

  // Throws Error, which names the policy, if the allocations use more than the nodes have.
  void check(const Allocations& allocations, const std::string& policy) const;

  // Returns the nodes that hold more than one distributed job. Such jobs slow each other down there.
  static std::set<std::string> contended(const Allocations& allocations);

  // Changes the number of nodes towards `desired_nodes`, within the range for autoscaling. New nodes exist at once, and
  // the last nodes are removed as long as they are idle. Does nothing if the size is fixed.
  void resize(int desired_nodes, const Allocations& allocations);

 private:
  std::vector<NodeInfo> nodes_;
  std::vector<NodeInfo> all_;                 // all nodes at the largest size; nodes_ are the first of these
  std::vector<double> prices_;                // of all_
  std::map<std::string, std::size_t> index_;  // into all_
  std::map<std::string, double> gpu_speed_;
  std::optional<Autoscale> autoscale_;
  int gpus_ = 0;
};

}  // namespace adaptdl::sched
