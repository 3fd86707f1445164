#include "random_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptdl::sched {
namespace {

using Random = std::mt19937_64;

int pick(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
double uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}
double log_uniform(Random& random, double low, double high) {
  return std::exp(uniform(random, std::log(low), std::log(high)));
}
bool chance(Random& random, double probability) { return uniform(random, 0, 1) < probability; }

template <typename Element>
Element one_of(Random& random, std::initializer_list<Element> all) {
  return *(all.begin() + pick(random, 0, static_cast<int>(all.size()) - 1));
}

std::string name(const char* what, int number) { return std::string(what) + "-" + std::to_string(number); }

// Places all replicas of the job on nodes that have room, beginning at a random node, or none if they do not fit.
Allocation place(Random& random, const JobInfo& job, int replicas, std::vector<NodeInfo>& free) {
  if (free.empty()) return {};
  Allocation allocation;
  std::vector<NodeInfo> after = free;
  const int first = pick(random, 0, static_cast<int>(free.size()) - 1);
  for (std::size_t i = 0; i < after.size(); ++i) {
    NodeInfo& node = after[(static_cast<std::size_t>(first) + i) % after.size()];
    while (static_cast<int>(allocation.size()) < replicas) {
      const bool fits = std::ranges::all_of(job.resources, [&](const auto& each) {
        return each.second <= 0 || node.resources[each.first] >= each.second;
      });
      if (!fits) break;
      for (const auto& [type, amount] : job.resources)
        if (amount > 0) node.resources[type] -= amount;
      allocation.push_back(node.name);
    }
  }
  if (static_cast<int>(allocation.size()) < replicas) return {};
  free = std::move(after);
  return allocation;
}

void run_some(Random& random, Problem& problem, double running) {
  std::vector<NodeInfo> free = problem.nodes;
  for (JobInfo& job : problem.jobs) {
    if (!chance(random, running)) continue;
    const int max_replicas = std::min({job.max_replicas, std::max(2 * job.profiled_replicas, 1), 32});
    if (max_replicas < std::max(job.min_replicas, 1)) continue;
    const int replicas = pick(random, std::max(job.min_replicas, 1), max_replicas);
    if (Allocation allocation = place(random, job, replicas, free); !allocation.empty())
      problem.previous[job.name] = std::move(allocation);
  }
}

JobInfo ordinary_job(Random& random, int number, double now) {
  JobInfo job;
  job.name = name("job", number);
  job.resources = {{"nvidia.com/gpu", 1}};
  job.max_replicas = one_of(random, {1, 8, 16, 64});
  job.creation_time = now - log_uniform(random, 1, 50'000);
  if (chance(random, 0.2)) return job;
  job.profiled_replicas = pick(random, 1, 16);
  job.num_restarts = pick(random, 0, 20);
  job.attained_service = uniform(random, 0, (now - job.creation_time) * job.profiled_replicas);
  job.speedup = ordinary_speedup(random);
  return job;
}

std::shared_ptr<const SpeedupFunction> hostile_speedup(Random& random) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto odd = [&] { return one_of(random, {std::nan(""), kInfinite, -kInfinite, -1.0, 0.0, 1e308, 1e-308, 0.1}); };
  const goodput::PerfParams perf{
      odd(), odd(), odd(), odd(), odd(), odd(), one_of(random, {0.0, 1.0, std::nan(""), 1e9})};
  const goodput::GradParams grad{odd(), odd()};
  return std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, grad, 32),
                                                 goodput::Limits{1024, 8, 64, chance(random, 0.5)});
}

void give_limits(Random& random, JobInfo& job) {
  if (chance(random, 0.3)) job.min_replicas = pick(random, 1, 6);
  job.max_replicas = std::max(job.max_replicas, job.min_replicas);
  job.preemptible = chance(random, 0.8);
  if (chance(random, 0.5)) job.resources["cpu"] = pick(random, 1, 8) * 500;
  if (chance(random, 0.2)) job.resources["memory"] = std::int64_t{1} << pick(random, 20, 36);
  if (chance(random, 0.1)) job.resources["nvidia.com/gpu"] = pick(random, 0, 3);
  job.requested_replicas = chance(random, 0.5) ? pick(random, 1, 8) : 0;
  if (chance(random, 0.5)) {
    job.progress = uniform(random, 0, 1000);
    job.target_progress = *job.progress + uniform(random, 0, 1000);
  }
  if (chance(random, 0.5)) {
    const double work = log_uniform(random, 10, 100'000);
    job.remaining_time = [work](double replicas) { return work / std::max(replicas, 1.0); };
  }
}

NodeInfo any_node(Random& random, int number) {
  NodeInfo node;
  node.name = name("node", number);
  node.resources = {{"nvidia.com/gpu", pick(random, 0, 8)},
                    {"cpu", pick(random, 0, 32) * 1000},
                    {"memory", std::int64_t{1} << pick(random, 30, 40)}};
  node.preemptible = chance(random, 0.3);
  node.gpu_type = one_of(random, {"", "a100", "t4"});
  return node;
}

void spoil_job(Random& random, JobInfo& job) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  switch (pick(random, 0, 9)) {
    case 0:
      job.resources.clear();
      break;
    case 1:
      job.resources["nvidia.com/gpu"] = one_of(random, {std::int64_t{0}, std::int64_t{-3}, kHuge});
      break;
    case 2:
      job.resources["never/heard-of"] = 1;
      break;
    case 3:
      job.min_replicas = one_of(random, {-5, 1000, kMaxInt});
      break;
    case 4:
      job.max_replicas = one_of(random, {-5, 0, 1, kMaxInt});
      break;
    case 5:
      job.speedup = hostile_speedup(random);
      break;
    case 6:
      job.creation_time = one_of(random, {std::nan(""), kInfinite, -kInfinite, 1e300});
      break;
    case 7:
      job.attained_service = one_of(random, {std::nan(""), kInfinite, -1.0});
      break;
    case 8:
      job.profiled_replicas = one_of(random, {-1, 0, kMaxInt});
      break;
    case 9:
      job.num_restarts = one_of(random, {-1, kMaxInt});
      job.progress = std::nan("");
      job.target_progress = one_of(random, {-1.0, kInfinite});
      job.requested_replicas = one_of(random, {-1, kMaxInt});
      job.remaining_time = [](double) { return std::nan(""); };
      job.gpu_speed = {{"t4", std::nan("")}, {"a100", -1}};
      break;
  }
}

void spoil(Random& random, Problem& problem) {
  for (JobInfo& job : problem.jobs)
    if (chance(random, 0.3)) spoil_job(random, job);
  for (NodeInfo& node : problem.nodes) {
    if (!chance(random, 0.15)) continue;
    node.resources["nvidia.com/gpu"] =
        one_of(random, {std::int64_t{0}, std::int64_t{-4}, std::int64_t{64}, std::numeric_limits<std::int64_t>::max()});
    node.resources["memory"] = one_of(random, {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()});
  }
  for (auto& [job, allocation] : problem.previous) {
    if (chance(random, 0.2)) allocation.push_back("gone");
    if (chance(random, 0.2)) allocation.insert(allocation.end(), allocation.begin(), allocation.end());
  }
  problem.previous["gone"] = {"gone", "gone"};
  switch (pick(random, 0, 9)) {
    case 0:
      problem.nodes.clear();
      break;
    case 1:
      problem.jobs.clear();
      break;
    case 2:
      problem.now = one_of(random, {std::nan(""), -1.0, 1e300});
      break;
    case 3:
      problem.node_template = NodeInfo{};
      break;
    default:
      break;
  }
}

}  // namespace

std::shared_ptr<const SpeedupFunction> ordinary_speedup(Random& random) {
  const int init = 1 << pick(random, 3, 9);
  const double sample = log_uniform(random, 1e-4, 0.1);  // seconds per sample
  goodput::PerfParams perf;
  perf.alpha_c = log_uniform(random, 0.001, 0.2);
  perf.beta_c = sample;
  const double step = perf.alpha_c + sample * init;
  perf.alpha_r = step * log_uniform(random, 0.005, 0.3);
  perf.beta_r = perf.alpha_r * uniform(random, 0, 0.1);
  perf.alpha_n = perf.alpha_r * uniform(random, 1, 4);
  perf.beta_n = perf.alpha_n * uniform(random, 0, 0.1);
  perf.gamma = uniform(random, 1, 10);
  const goodput::GradParams grad{1, log_uniform(random, 0.1, 100)};
  goodput::Limits limits;
  limits.max_batch_size = static_cast<std::size_t>(init) << pick(random, 2, 6);
  limits.min_local_bsz = static_cast<std::size_t>(std::max(init / (1 << pick(random, 0, 4)), 1));
  limits.max_local_bsz = static_cast<std::size_t>(init) << pick(random, 0, 2);
  limits.accumulation = chance(random, 0.5);
  return std::make_shared<const SpeedupFunction>(goodput::GoodputFunction(perf, grad, static_cast<std::size_t>(init)),
                                                 limits);
}

Problem ordinary_problem(Random& random, const OrdinaryShape& shape) {
  Problem problem;
  problem.now = 100'000;
  for (int node = 0; node < shape.nodes; ++node)
    problem.nodes.push_back({name("node", node), {{"nvidia.com/gpu", shape.gpus}}, false, ""});
  for (int job = 0; job < shape.jobs; ++job) problem.jobs.push_back(ordinary_job(random, job, problem.now));
  run_some(random, problem, shape.running);
  return problem;
}

Problem any_problem(Random& random) {
  Problem problem;
  problem.now = 100'000;
  const int nodes = pick(random, 1, 24), jobs = pick(random, 1, 40);
  for (int node = 0; node < nodes; ++node) problem.nodes.push_back(any_node(random, node));
  for (int number = 0; number < jobs; ++number) {
    JobInfo& job = problem.jobs.emplace_back(ordinary_job(random, number, problem.now));
    give_limits(random, job);
  }
  run_some(random, problem, 0.5);
  if (chance(random, 0.3)) problem.node_template = any_node(random, nodes);
  if (problem.node_template && chance(random, 0.5)) {
    problem.min_nodes = pick(random, 0, 7);
    problem.max_nodes = pick(random, 0, 15);
  }
  if (chance(random, 0.5)) spoil(random, problem);
  return problem;
}

}  // namespace adaptdl::sched
