// What Sia decides on: the nodes with what is free of them, and the configurations of each job with their costs.
//
// Threading: one thread at a time for one problem (speedup functions remember what they were asked).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy/allocation_search.h"
#include "policy/policy.h"

namespace adaptdl::sched::sia {

struct Node {
  const NodeInfo* info = nullptr;
  int type = 0;                    // index into Cluster::types
  std::vector<std::int64_t> free;  // by resource, at least 0; what pinned jobs hold is taken off
  bool distributed = false;        // has replicas of a distributed job that is not pinned
};

struct Cluster {
  std::vector<std::string> types;      // of GPUs, by name
  std::vector<std::string> resources;  // that jobs ask for, by name
  std::vector<Node> nodes;             // preemptible ones last, then by name
};

struct Configuration {
  int type = 0;
  int replicas = 0;
  int nodes = 0;
  bool keep = false;   // what the job has now, untouched; then `type` is that of its slowest node
  double goodput = 0;  // relative to the job's least
  double cost = 0;     // less is better
};

struct Job {
  const JobInfo* info = nullptr;
  std::vector<std::int64_t> demand;  // of a replica, by resource
  Placement current;                 // what it has now, as far as it can keep it; by node
  bool pinned = false;               // keeps `current`, and has no configurations
  std::vector<Configuration> configurations;
  double cost_of_nothing = 0;
  std::string obstacle;  // why it has no configuration
};

struct Model {
  Cluster cluster;
  std::vector<Job> jobs;  // in the order of the problem
};

struct Weights {
  double restart_cost = 30;
  double fairness = -0.5;  // the exponent p
};

// Takes pinned jobs' shares off the nodes, and works out every other job's configurations.
Model make_model(const Problem& problem, const Weights& weights);

// How many replicas of the job, at most its maximum and kMostReplicas, the node has room for.
int room(const Node& node, const Job& job);

// Takes the replicas off what is free of a node. REQUIRES room for them.
void take(Node& node, const Job& job, int replicas);

}  // namespace adaptdl::sched::sia
