// Tracks the free resources of the nodes while a policy allocates replicas to one job after another.
//
// A replica fits on a node if all resources that the replica requests are free there. The emptiest node is the one with
// room for the most replicas of the job. Ties are broken in favor of nodes that are not preemptible, then by the order
// in the problem.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "policy/base/policy.h"

namespace adaptdl::sched {

class FreeNodes {
 public:
  explicit FreeNodes(const std::vector<NodeInfo>& nodes);

  // Returns how many replicas with this demand fit on all nodes together, or 0 if they request nothing.
  int room(const Resources& demand) const;

  // Takes the resources that the replicas need. Returns false and takes nothing if a node does not exist or its free
  // resources do not suffice.
  bool take(const Allocation& allocation, const Resources& demand);

  // Takes room for the replicas on the emptiest nodes. If they do not fit, takes nothing and returns an empty
  // allocation.
  Allocation place(int replicas, const Resources& demand);

 private:
  struct Node {
    std::string name;
    Resources free;
  };
  static std::int64_t room(const Node& node, const Resources& demand);
  static void subtract(Node& node, const Resources& demand, std::int64_t replicas);

  std::vector<Node> nodes_;  // preferred ones first
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace adaptdl::sched
