// What the operator has to know of a node, and which pods may run there.
//
// Amounts are as in policy.h: processors in thousandths, everything else in whole units, and the resource "pods", of
// which a node has as many as it may run and every pod takes one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "policy/policy.h"

namespace adaptdl::sched {

struct NodeFacts {
  std::string name, gpu_type;
  Resources allocatable;
  bool ready = false;
  nlohmann::json labels, taints;  // an object; an array, that of a cordon among them
};

NodeFacts parse_node(const nlohmann::json& node);

// What Kubernetes' scheduler reserves for a pod: the sum of its containers' requests, or what one of its init
// containers requests if that is more, and its overhead. A limit without a request is one.
Resources pod_requests(const nlohmann::json& pod);

// Whether the pod may run on the node once that is ready and not cordoned.
bool could_run(const nlohmann::json& pod, const NodeFacts& node);
// Whether the node is ready and the pod's node selector, required node affinity and tolerations let it run there.
bool may_run(const nlohmann::json& pod, const NodeFacts& node);

Resources& operator+=(Resources& sum, const Resources& more);
// Down to 0 at least; resources that `sum` lacks are left out.
void subtract(Resources& sum, const Resources& less, std::int64_t times = 1);

}  // namespace adaptdl::sched
