// Reads the properties of a node that the operator needs, and decides whether a pod may run on it.
//
// Amounts are in the units of policy.h: CPUs in thousandths, everything else in whole units. The resource "pods" is the
// number of pods that a node may run; every pod requests one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "policy/base/policy.h"

namespace adaptdl::sched {

// The signs by which cloud providers and autoscalers announce that they are about to remove a node.
struct DrainSigns {
  // Keys of taints. A key that ends in '/' stands for all keys that begin with it.
  std::vector<std::string> taints = {"aws-node-termination-handler/",
                                     "aks-node-termination-handler/",
                                     "remediator.kubernetes.azure.com/unschedulable",
                                     "cloud.google.com/impending-node-termination",
                                     "karpenter.sh/disrupted",
                                     "karpenter.sh/disruption",
                                     "ToBeDeletedByClusterAutoscaler"};
  // Conditions with status True, by their type or reason.
  std::vector<std::string> conditions = {"PreemptScheduled", "RedeployScheduled", "TerminateScheduled"};
};

struct NodeFacts {
  std::string name, gpu_type;
  Resources allocatable;
  double created = 0;  // seconds since 1970
  bool ready = false;
  std::string leaving;            // the sign that the node is about to be removed; empty if there is none
  nlohmann::json labels, taints;  // labels: an object; taints: an array that includes the taint of a cordon
};

NodeFacts parse_node(const nlohmann::json& node, const DrainSigns& signs = {});

// Returns the resources that the Kubernetes scheduler reserves for a pod: the sum of its containers' requests, or the
// request of an init container if that is larger, plus its overhead. A limit without a request is treated as a request.
Resources pod_requests(const nlohmann::json& pod);

// Returns whether the node is ready, not about to be removed, and not cordoned.
bool accepts_pods(const NodeFacts& node);
// Returns whether the pod could run on the node if the node were ready, not cordoned, and not about to be removed.
bool could_run(const nlohmann::json& pod, const NodeFacts& node);
// Returns whether the node is ready and not about to be removed, and the pod's node selector, required node affinity
// and tolerations allow it.
bool may_run(const nlohmann::json& pod, const NodeFacts& node);

// Returns whether the resource is a kind of GPU, either from a device plugin, such as nvidia.com/gpu, or from a
// DeviceClass, such as deviceclass.resource.kubernetes.io/gpu.nvidia.com.
bool is_gpu(const std::string& resource);

// Returns an amount in the units of Kubernetes: CPUs in cores, everything else unchanged.
double in_kubernetes_units(const std::string& resource, std::int64_t amount);

Resources& operator+=(Resources& sum, const Resources& more);
// Subtracts `less` from `sum`, `times` times. No amount falls below 0, and resources that `sum` does not contain are
// ignored.
void subtract(Resources& sum, const Resources& less, std::int64_t times = 1);

}  // namespace adaptdl::sched
