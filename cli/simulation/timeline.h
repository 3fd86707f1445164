// A cluster over time, as it is drawn: which job had each GPU from when to when.
//
// A GPU of a node is a slot. Schedulers do not tell the GPUs of a node apart, so a job's replicas are given slots here,
// and keep them for as long as they are on the node.
//
// Threading: one thread at a time.
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
    int first_slot = 0;  // of its slots, which follow each other
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
    int running = 0, waiting = 0;  // jobs, from then on
  };

  std::string workload, policy;
  std::vector<Node> nodes;  // in the order in which they appear
  std::vector<Job> jobs;    // likewise
  // By slot, in order of time; neighbours differ. Where there is none, the node was not there.
  std::vector<std::vector<Run>> slots;
  std::vector<Count> counts;
  double begin = 0, end = 0;
};

class TimelineBuilder {
 public:
  // The cycles of one simulation in order. Throws Error, saying what is wrong, if time does not go on, or an allocation
  // does not fit the nodes of its cycle.
  void add(const sched::CycleRecord& record);

  // REQUIRES at least one cycle. The last one lasts as long as the one before. The builder is spent.
  Timeline finish();

 private:
  // A node's slots, each with what it had over time; the last run of one that is `there` is still open.
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
