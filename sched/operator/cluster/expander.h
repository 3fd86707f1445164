// Makes a cluster autoscaler add and remove nodes by changing the number of placeholder pods.
//
// The placeholders are the pods of a Deployment. They repel each other (podAntiAffinity), so each placeholder requires
// a node of its own. The autoscaler adds nodes for placeholders without a node, and removes nodes that have neither a
// placeholder nor a job. Placeholders are deleted from nodes that are cordoned or about to be removed, so that other
// nodes replace those nodes. If there are too many placeholders, those on surplus nodes end first (the annotation
// controller.kubernetes.io/pod-deletion-cost, since Kubernetes 1.22).
#pragma once

#include <optional>
#include <string>

#include "kube/api/client.h"
#include "operator/cluster/node_pool.h"
#include "policy/search/cluster_size.h"

namespace adaptdl::sched {

struct ExpanderSettings {
  std::string name_space, name;  // the Deployment
  NodePool pool;                 // `pod`, `last_desired` and `prices` are set by read_pool()
};

class Expander {
 public:
  // `access` is copied.
  Expander(kube::Access access, ExpanderSettings settings, std::vector<NodePrice> prices);

  // Returns the pool of nodes that the Deployment's pods may run on. If the Deployment cannot be read, logs a warning,
  // and returns the pool that was read last, if any.
  std::optional<NodePool> read_pool();
  // Scales the Deployment. Logs a warning if that fails. REQUIRES that read_pool() has returned a pool.
  void request(const PoolDecision& decision);

 private:
  void move_placeholders(const PoolDecision& decision);
  void warn(const std::string& error);

  const ExpanderSettings settings_;
  kube::Client client_;
  const std::vector<NodePrice> prices_;
  std::optional<NodePool> pool_;  // the pool that was read last
  std::string selector_;          // label selector of the placeholders
  int replicas_ = 0;              // the Deployment's number of replicas
  std::string last_error_;
};

}  // namespace adaptdl::sched
