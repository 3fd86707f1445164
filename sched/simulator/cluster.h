// The nodes of a simulated cluster, and which jobs have which of them.
//
// Threading: one thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "simulator/simulator.h"

namespace adaptdl::sched {

// What a replica takes one of.
inline constexpr char kGpu[] = "nvidia.com/gpu";

class Cluster {
 public:
  explicit Cluster(const SimulationOptions& options);

  const std::vector<NodeInfo>& nodes() const noexcept { return nodes_; }
  // A node that could be had besides. None: the size is fixed.
  std::optional<NodeInfo> node_template() const;
  int gpus() const noexcept { return gpus_; }  // of all nodes at the cluster's largest size
  // By type, relative to the traces; those of speed 1 are left out.
  const std::map<std::string, double>& gpu_speed() const noexcept { return gpu_speed_; }

  // Replicas on each node, in the order of the allocation, and the speed of its slowest GPU.
  // Throws Error if the allocation names a node that is not there.
  static std::vector<int> placement(const Allocation& allocation);
  double speed(const Allocation& allocation) const;
  // What the allocation costs per hour, by its share of the GPUs of each node. Throws Error like speed().
  double price(const Allocation& allocation) const;
  // What all nodes cost per hour.
  double price() const;

  // Throws Error, naming the policy, if the allocations take more than there is.
  void check(const Allocations& allocations, const std::string& policy) const;

  // The nodes that hold more than one distributed job, which get into each other's way there.
  static std::set<std::string> contended(const Allocations& allocations);

  // Goes towards that many nodes, within the range for autoscaling: new ones are there at once, the last ones go while
  // they are idle. Does nothing if the size is fixed.
  void resize(int desired_nodes, const Allocations& allocations);

 private:
  std::vector<NodeInfo> nodes_;
  std::vector<NodeInfo> all_;                 // at the largest size; nodes_ are the first of these
  std::vector<double> prices_;                // of all_
  std::map<std::string, std::size_t> index_;  // into all_
  std::map<std::string, double> gpu_speed_;
  std::optional<Autoscale> autoscale_;
  int gpus_ = 0;
};

}  // namespace adaptdl::sched
