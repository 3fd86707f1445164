// What is free on the nodes while a policy hands replicas out one job after the other.
//
// A replica fits where all of the resources that it asks for are free. The emptiest node is the one with room for most
// replicas of the job; of equals, the one that is not preemptible, and then the first in the problem.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "policy/policy.h"

namespace adaptdl::sched {

class FreeNodes {
 public:
  explicit FreeNodes(const std::vector<NodeInfo>& nodes);

  // How many replicas of such a job fit in all, on one node and another. 0 if they ask for nothing.
  int room(const Resources& demand) const;

  // Takes what the replicas need; or nothing, and returns false, if a node is not there or has too little free.
  bool take(const Allocation& allocation, const Resources& demand);

  // Takes room for that many replicas, on the emptiest nodes. Empty, and nothing taken, if there is not enough.
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
