// Makes a cluster autoscaler add and remove nodes, by the number of placeholder pods.
//
// The placeholders are the pods of a Deployment. They keep away from each other, so each of them needs a node of its
// own. The autoscaler adds nodes for those that have none, and removes nodes that have neither placeholder nor job.
// Placeholders are deleted from nodes that are cordoned or about to be removed, so that other nodes take their place.
// If there are too many, those of surplus nodes end first (the annotation controller.kubernetes.io/pod-deletion-cost,
// since Kubernetes 1.22).
//
// Threading: not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "kube/client.h"
#include "operator/node_pool.h"
#include "policy/cluster_size.h"

namespace adaptdl::sched {

struct ExpanderSettings {
  std::string name_space, name;  // of the Deployment
  NodePool pool;                 // without `pod` and `prices`
};

class Expander {
 public:
  // The client's access is copied.
  Expander(kube::Access access, ExpanderSettings settings, std::vector<NodePrice> prices);

  // Returns the pool of nodes that the Deployment's pods may run on. If it cannot be read, logs a warning, and returns
  // what was read before, if anything.
  std::optional<NodePool> read_pool();
  // Scales the Deployment. Logs a warning if that fails. REQUIRES that read_pool() has returned a pool.
  void request(const PoolDecision& decision);

 private:
  void move_placeholders(const PoolDecision& decision);
  void warn(const std::string& error);

  const ExpanderSettings settings_;
  kube::Client client_;
  const std::vector<NodePrice> prices_;
  std::optional<NodePool> pool_;  // that was read last
  std::string selector_;          // of the placeholders
  int replicas_ = 0;              // of the Deployment
  std::string last_error_;
};

}  // namespace adaptdl::sched
