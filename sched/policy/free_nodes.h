// Tracks what is free on the nodes while a policy allocates replicas to one job after the other.
//
// A replica fits on a node where all resources that it requests are free. The emptiest node is the one with room for
// the most replicas of the job. Among equals, nodes that are not preemptible come first, then the order of the problem.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "policy/policy.h"

namespace adaptdl::sched {

class FreeNodes {
 public:
  explicit FreeNodes(const std::vector<NodeInfo>& nodes);

  // Returns how many replicas with this demand fit on all nodes together, or 0 if they request nothing.
  int room(const Resources& demand) const;

  // Takes what the replicas need. Returns false and takes nothing if a node does not exist or has too little free.
  bool take(const Allocation& allocation, const Resources& demand);

  // Takes room for the replicas on the emptiest nodes. If they do not fit, takes nothing and returns no replicas.
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
