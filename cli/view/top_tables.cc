#include "view/top_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

using nlohmann::json;
using sched::AllocatorCluster;
using sched::AllocatorJob;
using sched::NodeFacts;
using sched::Resources;

std::int64_t gpus(const Resources& resources) {
  std::int64_t count = 0;
  for (const auto& [resource, amount] : resources) count += sched::is_gpu(resource) ? amount : 0;
  return count;
}

std::int64_t cpus(const Resources& resources) {
  const auto found = resources.find("cpu");
  return found == resources.end() ? 0 : found->second;
}

std::string cores(std::int64_t thousandths) {
  return thousandths % 1000 == 0 ? fmt::format("{}", thousandths / 1000)
                                 : fmt::format("{:.1f}", static_cast<double>(thousandths) / 1000);
}

std::string state_of(const NodeFacts& node) {
  if (!node.ready) return "not ready";
  if (!node.leaving.empty()) return "leaving";
  return sched::accepts_pods(node) ? "ready" : "cordoned";
}

std::vector<const NodeFacts*> by_name(const std::vector<NodeFacts>& nodes) {
  std::vector<const NodeFacts*> sorted;
  for (const NodeFacts& node : nodes) sorted.push_back(&node);
  std::ranges::sort(sorted, {}, &NodeFacts::name);
  return sorted;
}

std::vector<const AllocatorJob*> by_name(const std::vector<AllocatorJob>& jobs) {
  std::vector<const AllocatorJob*> sorted;
  for (const AllocatorJob& job : jobs) sorted.push_back(&job);
  std::ranges::sort(sorted, {}, [](const AllocatorJob* job) { return job->info.name; });
  return sorted;
}

int pods_on(const AllocatorJob& job, const std::string& node) {
  const auto found = job.live.find(node);
  return found == job.live.end() ? 0 : found->second;
}

Resources used_by_others(const AllocatorCluster& cluster, const std::string& node) {
  const auto found = cluster.used.find(node);
  return found == cluster.used.end() ? Resources() : found->second;
}

Resources used_on(const AllocatorCluster& cluster, const std::string& node) {
  using sched::operator+=;
  Resources used = used_by_others(cluster, node);
  for (const AllocatorJob& job : cluster.jobs) {
    if (const auto found = job.requests.find(node); found != job.requests.end()) used += found->second;
  }
  return used;
}

std::int64_t gpus_of(const AllocatorJob& job) {
  std::int64_t count = 0;
  for (const auto& [node, requests] : job.requests) count += gpus(requests);
  return count;
}

json to_json(const Resources& resources) {
  json amounts = json::object();
  for (const auto& [resource, amount] : resources) amounts[resource] = sched::in_kubernetes_units(resource, amount);
  return amounts;
}

}  // namespace

Table nodes_table(const AllocatorCluster& cluster) {
  const bool any_gpu =
      std::ranges::any_of(cluster.nodes, [](const NodeFacts& node) { return gpus(node.allocatable) > 0; });
  Table table({{"NODE"}, {"STATE"}, {any_gpu ? "GPUS" : "CPUS", Table::Align::kRight}, {"JOBS"}});
  for (const NodeFacts* node : by_name(cluster.nodes)) {
    const Resources used = used_on(cluster, node->name);
    std::string jobs;
    for (const AllocatorJob* job : by_name(cluster.jobs)) {
      if (const int pods = pods_on(*job, node->name); pods > 0)
        jobs += fmt::format("{}{} {}", jobs.empty() ? "" : ", ", job->info.name, pods);
    }
    if (const std::int64_t others = gpus(used_by_others(cluster, node->name)); others > 0)
      jobs += fmt::format("{}others {}", jobs.empty() ? "" : ", ", others);
    const std::string amount = any_gpu ? fmt::format("{}/{}", gpus(used), gpus(node->allocatable))
                                       : cores(cpus(used)) + '/' + cores(cpus(node->allocatable));
    table.add_row({node->name, state_of(*node), amount, jobs.empty() ? "-" : jobs});
  }
  return table;
}

Table jobs_on_nodes_table(const AllocatorCluster& cluster) {
  Table table({{"JOB"},
               {"REPLICAS", Table::Align::kRight},
               {"NODES", Table::Align::kRight},
               {"GPUS", Table::Align::kRight},
               {"GOODPUT", Table::Align::kRight}});
  for (const AllocatorJob* job : by_name(cluster.jobs)) {
    if (job->current.empty()) continue;
    const auto goodput = sched::goodput_of(*job);
    table.add_row({job->info.name, fmt::format("{}", job->current.size()),
                   fmt::format("{}", sched::count_nodes(job->current)), fmt::format("{}", gpus_of(*job)),
                   goodput ? rate_text(*goodput) : "-"});
  }
  return table;
}

json top_json(const AllocatorCluster& cluster) {
  json nodes = json::array(), jobs = json::array();
  for (const NodeFacts* node : by_name(cluster.nodes)) {
    json pods = json::object();
    for (const AllocatorJob* job : by_name(cluster.jobs)) {
      if (const int count = pods_on(*job, node->name); count > 0) pods[job->info.name] = count;
    }
    nodes.push_back({{"name", node->name},
                     {"state", state_of(*node)},
                     {"why", node->leaving},
                     {"allocatable", to_json(node->allocatable)},
                     {"used", to_json(used_on(cluster, node->name))},
                     {"pods", std::move(pods)}});
  }
  for (const AllocatorJob* job : by_name(cluster.jobs)) {
    if (job->current.empty()) continue;
    const auto goodput = sched::goodput_of(*job);
    jobs.push_back({{"name", job->info.name},
                    {"replicas", job->current.size()},
                    {"nodes", sched::count_nodes(job->current)},
                    {"allocation", job->current},
                    {"goodput", goodput ? json(*goodput) : json()}});
  }
  return {{"nodes", std::move(nodes)}, {"jobs", std::move(jobs)}};
}

}  // namespace adaptdl::cli
