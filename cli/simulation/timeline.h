// Timeline describes a cluster over time for a plot: which job used each GPU, and when.
//
// A slot is one GPU on a node. Schedulers do not distinguish the GPUs on a node, so the builder assigns slots to a
// job's replicas, which keep them for as long as they are on the node.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/simulator.h"

namespace adaptdl::cli {

struct Timeline {
  static constexpr int kFree = -1;

  struct Node {
    std::string name;
    std::string gpu_type;
    int gpus = 0;
    int first_slot = 0;  // index of the node's first slot; a node's slots are consecutive
  };
  struct Job {
    std::string name;
    std::string application;
  };
  struct Run {
    int job = kFree;
    double from = 0, to = 0;  // seconds
  };
  struct Count {
    double time = 0;
    int running = 0, waiting = 0;  // numbers of jobs from `time` on
  };

  std::string workload, policy;
  std::vector<Node> nodes;  // in the order in which they appear
  std::vector<Job> jobs;    // in the order in which they appear
  // The runs on each slot, in order of time; consecutive runs belong to different jobs. During a gap between runs, the
  // node does not exist.
  std::vector<std::vector<Run>> slots;
  std::vector<Count> counts;
  double begin = 0, end = 0;
};

class TimelineBuilder {
 public:
  // Adds the next cycle of the simulation. Throws Error, stating the reason, if time does not advance or if an
  // allocation does not fit the cycle's nodes.
  void add(const sched::CycleRecord& record);

  // Returns the timeline; must be the last call. The last cycle is assumed to be as long as the one before it. REQUIRES
  // at least one cycle.
  Timeline finish();

 private:
  // A node's slots, with their runs. While the node exists (`there`), the last run on each slot is still open.
  struct Slots {
    std::vector<std::vector<Timeline::Run>> runs;
    bool there = false;
  };

  std::size_t node_index(const sched::NodeInfo& node);
  int job_index(const sched::CycleJob& job);
  void assign(const Timeline::Node& node, Slots& slots, std::map<int, int> wanted, double time);

  Timeline timeline_;
  std::map<std::string, std::size_t> node_index_;
  std::map<std::string, int> job_index_;
  std::vector<Slots> slots_;  // by node
};

}  // namespace adaptdl::cli
