#include "simulation/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "adaptdl/error.h"
#include "base/counted.h"

namespace adaptdl::cli {

using sched::CycleJob;
using sched::CycleRecord;
using sched::NodeInfo;

namespace {

// Cycle files contain no resource other than GPUs.
int gpus_of(const NodeInfo& node) {
  return node.resources.empty() ? 0 : static_cast<int>(node.resources.begin()->second);
}

}  // namespace

std::size_t TimelineBuilder::node_index(const NodeInfo& info) {
  const auto [found, fresh] = node_index_.emplace(info.name, timeline_.nodes.size());
  if (fresh) {
    timeline_.nodes.push_back({info.name, info.gpu_type, 0, 0});
    slots_.emplace_back();
  }
  Timeline::Node& node = timeline_.nodes[found->second];
  node.gpus = std::max(node.gpus, gpus_of(info));
  return found->second;
}

int TimelineBuilder::job_index(const CycleJob& job) {
  const auto [found, fresh] = job_index_.emplace(job.name, static_cast<int>(timeline_.jobs.size()));
  if (fresh) timeline_.jobs.push_back({job.name, job.application});
  return found->second;
}

// Assigns a node's slots to its jobs from `time` on: jobs keep the slots that they have, and receive the first free
// slots for additional replicas. REQUIRES enough slots for all replicas.
void TimelineBuilder::assign(const Timeline::Node& node, Slots& slots, std::map<int, int> wanted, double time) {
  slots.runs.resize(static_cast<std::size_t>(node.gpus));
  std::vector<int> now(slots.runs.size(), Timeline::kFree);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (!slots.there || slots.runs[i].empty()) continue;
    const int before = slots.runs[i].back().job;
    if (const auto left = wanted.find(before); left != wanted.end() && left->second-- > 0) now[i] = before;
  }
  auto free = now.begin();
  for (auto& [job, count] : wanted) {
    for (; count > 0; --count) {
      free = std::find(free, now.end(), Timeline::kFree);
      *free = job;
    }
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::vector<Timeline::Run>& runs = slots.runs[i];
    if (slots.there && !runs.empty()) {
      runs.back().to = time;
      if (runs.back().job == now[i]) continue;
    }
    runs.push_back({now[i], time, time});
  }
  slots.there = true;
}

void TimelineBuilder::add(const CycleRecord& record) {
  timeline_.workload = record.workload;
  timeline_.policy = record.policy;
  if (timeline_.counts.empty()) timeline_.begin = timeline_.end = record.time;
  if (!timeline_.counts.empty() && !(record.time > timeline_.counts.back().time))
    throw Error(fmt::format("time must increase, but {} is followed by {}", timeline_.counts.back().time, record.time));

  std::map<std::string, std::map<int, int>> wanted;  // number of replicas by node and job
  Timeline::Count count{record.time, 0, 0};
  for (const NodeInfo& node : record.nodes) wanted[node.name];
  for (const CycleJob& job : record.jobs) {
    if (job.state == sched::JobState::kCompleted) continue;
    const int index = job_index(job);
    ++(job.allocation.empty() ? count.waiting : count.running);
    for (const std::string& name : job.allocation) {
      const auto node = wanted.find(name);
      if (node == wanted.end())
        throw Error(fmt::format("job '{}' is on node '{}', which does not exist", job.name, name));
      ++node->second[index];
    }
  }
  std::set<std::size_t> there;
  for (const NodeInfo& info : record.nodes) {
    int replicas = 0;
    for (const auto& [job, number] : wanted[info.name]) replicas += number;
    if (replicas > gpus_of(info))
      throw Error(fmt::format("node '{}' has {}, more than its {}", info.name, counted(replicas, "replica"),
                              counted(gpus_of(info), "GPU")));
    const std::size_t node = node_index(info);
    there.insert(node);
    assign(timeline_.nodes[node], slots_[node], wanted[info.name], record.time);
  }
  for (std::size_t node = 0; node < slots_.size(); ++node) {
    if (!slots_[node].there || there.contains(node)) continue;
    for (auto& runs : slots_[node].runs) runs.back().to = record.time;
    slots_[node].there = false;
  }
  timeline_.counts.push_back(count);
}

Timeline TimelineBuilder::finish() {
  const auto& counts = timeline_.counts;
  timeline_.end = counts.back().time;
  if (counts.size() > 1) timeline_.end += counts.back().time - counts[counts.size() - 2].time;
  for (std::size_t node = 0; node < slots_.size(); ++node) {
    timeline_.nodes[node].first_slot = static_cast<int>(timeline_.slots.size());
    for (auto& runs : slots_[node].runs) {
      if (slots_[node].there) runs.back().to = timeline_.end;
      timeline_.slots.push_back(std::move(runs));
    }
  }
  return std::move(timeline_);
}

}  // namespace adaptdl::cli
