// The problem that Sia solves: nodes with their free resources, and each job's configurations with their costs.
//
// Threading: only one thread at a time may use a problem, because speedup functions cache their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy/base/policy.h"
#include "policy/search/allocation_search.h"

namespace adaptdl::sched::sia {

struct Node {
  const NodeInfo* info = nullptr;
  int type = 0;                    // index into Cluster::types
  std::vector<std::int64_t> free;  // by resource, at least 0; excludes what pinned jobs hold
  bool distributed = false;        // whether it runs replicas of an unpinned distributed job
};

struct Cluster {
  std::vector<std::string> types;      // GPU types, sorted by name
  std::vector<std::string> resources;  // those that jobs request, sorted by name
  std::vector<Node> nodes;             // sorted by name, preemptible ones last
};

struct Configuration {
  int type = 0;
  int replicas = 0;
  int nodes = 0;
  bool keep = false;   // whether this is the unchanged current placement; `type` is then the slowest node's
  double goodput = 0;  // relative to the job's smallest goodput
  double cost = 0;     // lower is better
};

struct Job {
  const JobInfo* info = nullptr;
  std::vector<std::int64_t> demand;  // per replica, by resource
  Placement current;                 // the current placement; empty if the job cannot keep it
  bool pinned = false;               // keeps `current`, and has no configurations
  std::vector<Configuration> configurations;
  double cost_of_nothing = 0;
  std::string obstacle;  // why the job has no configuration
};

struct Model {
  Cluster cluster;
  std::vector<Job> jobs;  // in the order of the problem
};

struct Weights {
  double restart_cost = 30;
  double fairness = -0.5;  // the exponent p
};

// Subtracts the resources of pinned jobs from the nodes, and computes the configurations of all other jobs.
Model make_model(const Problem& problem, const Weights& weights);

// Returns how many more replicas of the job fit on the node, up to the job's maximum and kMaxReplicasPerJob.
int room(const Node& node, const Job& job);

// Subtracts the replicas' demand from the node's free resources. REQUIRES room for them.
void take(Node& node, const Job& job, int replicas);

}  // namespace adaptdl::sched::sia
