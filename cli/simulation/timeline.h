// Timeline describes a cluster over time for a plot: which job had each GPU, and when.
//
// A slot is one GPU of a node. Schedulers do not distinguish the GPUs of a node, so the builder assigns slots to the
// replicas of a job, which keep them for as long as they are on the node.
//
// Threading: used by one thread at a time.
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
    int first_slot = 0;  // of its slots, which are consecutive
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
    int running = 0, waiting = 0;  // numbers of jobs, from then on
  };

  std::string workload, policy;
  std::vector<Node> nodes;  // in the order in which they appear
  std::vector<Job> jobs;    // likewise
  // The runs of each slot, in order of time; adjacent ones have different jobs. In a gap, the node does not exist.
  std::vector<std::vector<Run>> slots;
  std::vector<Count> counts;
  double begin = 0, end = 0;
};

class TimelineBuilder {
 public:
  // Adds the next cycle of the simulation. Throws Error with the reason if time does not advance, or if an allocation
  // does not fit the nodes of the cycle.
  void add(const sched::CycleRecord& record);

  // Returns the timeline, as the last call; the last cycle is as long as the one before. REQUIRES at least one cycle.
  Timeline finish();

 private:
  // The slots of a node, with their runs; while the node is `there`, the last run of each slot is still open.
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
