// Answers questions about allocations: each line of standard input is a JSON object, and each gets a line of standard
// output. The counterpart with the published Python package is python_scheduler_peer.py; python_scheduler_test.py asks
// the questions.
//
// "what" is one of
//   allocate   problem policy repeat -> {allocations, seconds: the median of the repetitions, each with new speedup
//              functions that have no cached values}
//   evaluate   problem allocations -> the released scheduler's objective
// A problem has "nodes" (of 4 GPUs each), "jobs" (a list of name, perf, grad, init, max, min_local, max_local,
// accumulation, profiled, max_replicas, creation), and "previous" (the nodes of each replica by job name).
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "answer_lines.h"
#include "policy/policies.h"

namespace {

using namespace adaptdl;
using namespace adaptdl::sched;
using nlohmann::json;

constexpr int kGpus = 4;

std::shared_ptr<const SpeedupFunction> speedup_of(const json& job) {
  const json &perf = job.at("perf"), &grad = job.at("grad");
  const goodput::GoodputFunction function(
      {perf.at(0), perf.at(1), perf.at(2), perf.at(3), perf.at(4), perf.at(5), perf.at(6)}, {grad.at(0), grad.at(1)},
      job.at("init"));
  const goodput::Limits limits{job.at("max").get<std::size_t>(), job.at("min_local").get<std::size_t>(),
                               job.at("max_local").get<std::size_t>(), job.at("accumulation").get<bool>()};
  return std::make_shared<const SpeedupFunction>(function, limits);
}

Problem problem_of(const json& question) {
  Problem problem;
  for (const json& node : question.at("nodes")) problem.nodes.push_back({node, {{"nvidia.com/gpu", kGpus}}, false, ""});
  for (const json& each : question.at("jobs")) {
    JobInfo job;
    job.name = each.at("name");
    job.resources = {{"nvidia.com/gpu", 1}};
    job.max_replicas = each.at("max_replicas");
    job.profiled_replicas = each.at("profiled");
    job.creation_time = each.at("creation");
    job.speedup = speedup_of(each);
    problem.jobs.push_back(std::move(job));
  }
  problem.previous = question.at("previous").get<Allocations>();
  return problem;
}

json allocate(const json& question) {
  const std::unique_ptr<Policy> policy = make_policy(question.at("policy").get<std::string>(), {});
  std::vector<double> seconds;
  Decision decision;
  for (int i = 0; i < question.at("repeat").get<int>(); ++i) {
    const Problem problem = problem_of(question.at("problem"));
    const auto began = std::chrono::steady_clock::now();
    decision = policy->optimize(problem, nullptr);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  std::ranges::sort(seconds);
  return {{"allocations", decision.allocations}, {"seconds", seconds[seconds.size() / 2]}};
}

// Returns the sum of the speedups, each multiplied by the share of a node that a replica takes and, if the job's
// allocation has changed, by 0.9.
double evaluate(const json& question) {
  const Problem problem = problem_of(question.at("problem"));
  const Allocations allocations = question.at("allocations").get<Allocations>();
  const double node_share = 1.0 / kGpus;
  double sum = 0;
  for (const JobInfo& job : problem.jobs) {
    const auto of = [&](const Allocations& all) {
      const auto found = all.find(job.name);
      return found == all.end() ? std::multiset<std::string>()
                                : std::multiset<std::string>(found->second.begin(), found->second.end());
    };
    const std::multiset<std::string> replicas = of(allocations);
    const std::set<std::string> nodes(replicas.begin(), replicas.end());
    const double speedup = (*job.speedup)(static_cast<int>(nodes.size()), static_cast<int>(replicas.size()));
    sum += speedup * node_share * (replicas == of(problem.previous) ? 1 : 0.9);
  }
  return sum;
}

json answer_to(const json& question) {
  const std::string what = question.at("what");
  if (what == "allocate") return allocate(question);
  if (what == "evaluate") return evaluate(question);
  throw std::runtime_error("no such question: " + what);
}

}  // namespace

int main() { return answer_lines("scheduler_program", answer_to); }
