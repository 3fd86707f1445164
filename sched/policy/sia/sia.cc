#include "policy/sia/sia.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/counted.h"
#include "policy/base/assignment_program.h"
#include "policy/search/search_frame.h"
#include "policy/sia/sia_placement.h"
#include "policy/sia/sia_problem.h"

namespace adaptdl::sched {
namespace {

using sia::Configuration;
using sia::Model;
using sia::Placed;
using sia::Weights;

// With a larger exponent, powers of goodputs would differ by more than a linear programming solver's precision allows.
constexpr double kMaxFairness = 10;

// The rows of the integer program: the resources of each GPU type.
class Rows {
 public:
  explicit Rows(const Model& model) : model_(model), resources_(model.cluster.resources.size()) {
    const std::size_t rows = model.cluster.types.size() * resources_;
    std::vector<std::int64_t> unit(rows, 0);
    for (const sia::Job& job : model.jobs) {
      for (std::size_t row = 0; row < rows; ++row) unit[row] = std::gcd(unit[row], job.demand[row % resources_]);
    }
    // Amounts are in units of the demands' greatest common divisor. A solver handles such units better than bytes, and
    // the remainder on a node, which no demand can use, does not weaken the relaxation.
    for (const std::int64_t each : unit) unit_.push_back(std::max<std::int64_t>(each, 1));
    capacity_.assign(rows, 0);
    for (const sia::Node& node : model.cluster.nodes) {
      for (std::size_t i = 0; i < resources_; ++i)
        capacity_[row(node.type, i)] += static_cast<double>(node.free[i] / unit_[row(node.type, i)]);
    }
  }

  const std::vector<double>& capacity() const { return capacity_; }

  std::vector<std::pair<int, double>> uses(const sia::Job& job, const Configuration& configuration) const {
    std::vector<double> amounts(capacity_.size(), 0);
    const auto add = [&](int type, int replicas) {
      for (std::size_t i = 0; i < resources_; ++i)
        amounts[row(type, i)] += static_cast<double>(job.demand[i] / unit_[row(type, i)]) * replicas;
    };
    if (configuration.keep) {
      for (const Share& share : job.current) add(model_.cluster.nodes[share.node].type, share.replicas);
    } else {
      add(configuration.type, configuration.replicas);
    }
    std::vector<std::pair<int, double>> uses;
    for (std::size_t row = 0; row < amounts.size(); ++row) {
      if (amounts[row] > 0) uses.emplace_back(static_cast<int>(row), amounts[row]);
    }
    return uses;
  }

 private:
  std::size_t row(int type, std::size_t resource) const {
    return static_cast<std::size_t>(type) * resources_ + resource;
  }

  const Model& model_;
  std::size_t resources_;
  std::vector<std::int64_t> unit_;
  std::vector<double> capacity_;
};

std::vector<int> choose(const Model& model) {
  const Rows rows(model);
  AssignmentProgram program{{}, rows.capacity()};
  for (const sia::Job& job : model.jobs) {
    auto& options = program.groups.emplace_back();
    for (const Configuration& one : job.configurations)
      options.push_back({one.cost - job.cost_of_nothing, rows.uses(job, one)});
  }
  return solve_assignment(program);
}

std::string on_nodes(int replicas, std::size_t nodes, const std::string& type) {
  return counted(replicas, "replica") + " on " + counted(nodes, "node") +
         (type.empty() ? "" : " of type '" + type + "'");
}

std::string reason(const Model& model, const sia::Job& job, const Placed& placed) {
  if (job.pinned) {
    int replicas = 0;
    for (const Share& share : job.current) replicas += share.replicas;
    return fmt::format("keeps {}: not preemptible", on_nodes(replicas, job.current.size(), ""));
  }
  if (!job.obstacle.empty()) return "waits: " + job.obstacle;
  if (placed.configuration < 0) {
    return placed.as_chosen
               ? "waits: other jobs make better use of the resources that it could use"
               : "waits: the nodes are too fragmented for its chosen configuration, and no other one fits";
  }
  const Configuration& one = job.configurations[placed.configuration];
  std::string text = one.keep ? "keeps " : "";
  text += on_nodes(one.replicas, placed.placement.size(), model.cluster.types[one.type]);
  text += fmt::format(": {:.3g} times the goodput of its worst configuration", one.goodput);
  if (!placed.as_chosen) text += "; the nodes are too fragmented for its chosen configuration";
  return text;
}

class Sia : public Policy {
 public:
  explicit Sia(const Weights& weights) : weights_(weights) {}

  Decision optimize(const Problem& problem, const std::shared_ptr<const PolicyState>&) const override {
    const Model model = make_model(problem, weights_);
    const std::vector<Placed> placed = place(model, choose(model));
    Decision decision;
    decision.desired_nodes = static_cast<int>(problem.nodes.size());
    for (std::size_t i = 0; i < model.jobs.size(); ++i) {
      const sia::Job& job = model.jobs[i];
      Allocation& allocation = decision.allocations[job.info->name];
      decision.reasons[job.info->name] = reason(model, job, placed[i]);
      const int configuration = placed[i].configuration;
      const bool kept = configuration >= 0 && job.configurations[configuration].keep;
      // Jobs that keep their placement also keep the order of their ranks.
      if (job.pinned || kept) allocation = problem.previous.at(job.info->name);
      if (job.pinned || (kept && side_by_side(allocation))) continue;
      allocation.clear();
      for (const Share& share : placed[i].placement)
        allocation.insert(allocation.end(), share.replicas, model.cluster.nodes[share.node].info->name);
    }
    return decision;
  }

 private:
  Weights weights_;
};

}  // namespace

std::unique_ptr<Policy> make_sia(const PolicyOptions& options) {
  const double fairness = std::isfinite(options.fairness) ? options.fairness : PolicyOptions().fairness;
  const double restart_cost = std::isfinite(options.restart_cost) ? std::max(options.restart_cost, 0.0) : 0;
  load_assignment_solver();
  return std::make_unique<Sia>(Weights{restart_cost, std::clamp(fairness, -kMaxFairness, kMaxFairness)});
}

}  // namespace adaptdl::sched
