#include "policy/search/genome.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "policy/search/search_frame.h"
#include "policy/search/search_state.h"

namespace adaptdl::sched {
namespace {

using nsga2::Random;

constexpr double kCrossover = 0.9, kReset = 0.1, kThin = 0.1, kTakeAway = 0.1;

// Avoids the division for the common demand of one GPU, because divisions are slow.
std::int64_t quotient(std::int64_t amount, std::int64_t demand) { return demand == 1 ? amount : amount / demand; }

}  // namespace

Genome::Genome(const PolluxProblem& problem, const PowerMean& mean, int max_nodes)
    : problem_(problem),
      mean_(mean),
      max_nodes_(std::max(max_nodes, 1)),
      nodes_(problem.search.nodes.size()),
      types_(nodes_ == 0 ? 0 : problem.search.nodes[0].capacity.size()) {
  for (const SearchNode& node : problem.search.nodes)
    capacity_.insert(capacity_.end(), node.capacity.begin(), node.capacity.end());
  pinned_use_.assign(capacity_.size(), 0);
  pinned_progress_.assign(types_, 0);
  for (std::size_t index = 0; index < problem.search.jobs.size(); ++index) {
    const SearchJob& each = problem.search.jobs[index];
    if (each.pinned) {
      pinned_value_ += each.keep;
      const auto replicas = static_cast<std::size_t>(replica_count(each.previous));
      const SpeedupRows& speedups = problem.speedups[index];
      const double speedup = replicas < speedups.one_node.size() ? speedups(each.previous.size(), replicas) : 0;
      for (std::size_t type = 0; type < types_; ++type) {
        pinned_progress_[type] += speedup * static_cast<double>(each.demand[type]);
        for (const Share& share : each.previous)
          pinned_use_[static_cast<std::size_t>(share.node) * types_ + type] += share.replicas * each.demand[type];
      }
    } else if (problem.constraints[index] == Constraint::kNone) {
      movable_.push_back(index);
    } else {
      pinned_value_ += each.one_node[0];
    }
  }
  for (std::size_t cell = 0; cell < capacity_.size(); ++cell) capacity_[cell] -= pinned_use_[cell];
  base_.assign(jobs() * nodes_, 0);
  for (std::size_t index = 0; index < jobs(); ++index) {
    for (const Share& share : job(index).previous)
      base_[index * nodes_ + static_cast<std::size_t>(share.node)] =
          static_cast<Count>(std::min<int>(share.replicas, std::numeric_limits<Count>::max()));
    for (std::size_t node = 0; node < nodes_; ++node) {
      const auto begin = capacity_.begin() + static_cast<std::ptrdiff_t>(node * types_);
      const std::int64_t max_replicas = room(job(index).demand, {begin, begin + static_cast<std::ptrdiff_t>(types_)});
      room_.push_back(static_cast<Count>(std::min<std::int64_t>(max_replicas, job(index).max_replicas * 4)));
    }
  }
  order_.resize(nodes_);
  std::iota(order_.begin(), order_.end(), 0u);
}

Individual Genome::encode(const std::vector<Placement>& state) const {
  Individual individual;
  individual.cells.assign(jobs() * nodes_, 0);
  for (std::size_t index = 0; index < jobs(); ++index)
    for (const Share& share : state[movable_[index]])
      individual.cells[index * nodes_ + static_cast<std::size_t>(share.node)] =
          static_cast<Count>(std::min<int>(share.replicas, std::numeric_limits<Count>::max()));
  return individual;
}

std::vector<Placement> Genome::decode(const Individual& individual) const {
  std::vector<Placement> state(problem_.search.jobs.size());
  for (std::size_t index = 0; index < state.size(); ++index)
    if (problem_.search.jobs[index].pinned) state[index] = problem_.search.jobs[index].previous;
  for (std::size_t index = 0; index < jobs(); ++index)
    for (std::size_t node = 0; node < nodes_; ++node)
      if (const Count count = individual.cells[index * nodes_ + node]; count > 0)
        state[movable_[index]].push_back({static_cast<int>(node), count});
  return state;
}

void Genome::cross(Individual& a, Individual& b, Random& random) const {
  if (!random.happens(kCrossover)) return;
  const std::size_t point = random.below(static_cast<std::uint32_t>(jobs())) * nodes_;
  std::swap_ranges(a.cells.begin(), a.cells.begin() + static_cast<std::ptrdiff_t>(point), b.cells.begin());
}

void Genome::mutate(Individual& individual, Random& random) {
  for (std::size_t index = 0; index < jobs(); ++index) {
    Count* cells = row(individual, index);
    // One random number decides both mutations; each of them uses one half of its bits.
    const std::uint64_t bits = random.bits();
    if (static_cast<std::uint32_t>(bits) < kReset * 0x1p32) std::copy_n(base_.data() + index * nodes_, nodes_, cells);
    if (static_cast<double>(bits >> 32) >= kThin * 0x1p32) continue;
    for (std::size_t node = 0; node < nodes_; ++node)
      if (cells[node] > 0 && random.happens(kTakeAway)) cells[node] = 0;
  }
  measure_free(individual);
  for (std::size_t node = 0; node < nodes_; ++node) fill(individual, node, random);
}

// If more is taken than the node has, the free amount is -1, because the sum of huge demands could overflow.
void Genome::measure_free(const Individual& individual) {
  free_ = capacity_;
  for (std::size_t index = 0; index < jobs(); ++index) {
    const Count* cells = individual.cells.data() + index * nodes_;
    const std::vector<std::int64_t>& demand = job(index).demand;
    for (std::size_t node = 0; node < nodes_; ++node) {
      if (cells[node] == 0) continue;
      for (std::size_t type = 0; type < types_; ++type) {
        std::int64_t& free = free_[node * types_ + type];
        if (demand[type] > 0)
          free = cells[node] > quotient(free, demand[type]) ? -1 : free - cells[node] * demand[type];
      }
    }
  }
}

bool Genome::fits(std::size_t index, std::size_t node) const {
  const std::vector<std::int64_t>& demand = job(index).demand;
  for (std::size_t type = 0; type < types_; ++type)
    if (demand[type] > free_[node * types_ + type]) return false;
  return true;
}

// On average, adds replicas to one of the jobs for which another replica fits on the node, and to one of the jobs that
// already have replicas on the node.
void Genome::fill(Individual& individual, std::size_t node, Random& random) {
  bool any = false;
  for (std::size_t type = 0; type < types_; ++type) any = any || free_[node * types_ + type] > 0;
  if (!any) return;
  open_.assign(jobs(), 0);
  int open = 0, present = 0;
  for (std::size_t index = 0; index < jobs(); ++index) {
    if (!fits(index, node)) continue;
    open_[index] = 1;
    ++open;
    present += individual.cells[index * nodes_ + node] > 0;
  }
  const double to_any = 1.0 / std::max(open, 1), to_present = 1.0 / std::max(present, 1);
  for (std::size_t index = 0; index < jobs(); ++index) {
    if (!open_[index]) continue;
    Count& cell = individual.cells[index * nodes_ + node];
    const Count max_cell = room_[index * nodes_ + node];
    const double chance = cell > 0 ? to_any + to_present - to_any * to_present : to_any;
    if (random.happens(chance) && cell < max_cell) cell = static_cast<Count>(cell + random.below(max_cell - cell + 1u));
  }
}

void Genome::repair(Individual& individual, Random& random) {
  separate_distributed(individual);
  for (std::size_t index = 0; index < jobs(); ++index) limit(row(individual, index), job(index).max_replicas, random);
  respect_nodes(individual);
}

void Genome::separate_distributed(Individual& individual) {
  open_.assign(nodes_, 1);
  for (std::size_t index = 0; index < jobs(); ++index) {
    Count* cells = row(individual, index);
    if (nodes_ - static_cast<std::size_t>(std::count(cells, cells + nodes_, Count{0})) < 2) continue;
    for (std::size_t node = 0; node < nodes_; ++node) {
      if (cells[node] == 0) continue;
      if (open_[node]) {
        open_[node] = 0;
      } else {
        cells[node] = 0;
      }
    }
  }
}

// Enforces the limits on replicas and nodes. The nodes that lose replicas are chosen at random.
void Genome::limit(Count* cells, int max_replicas, Random& random) {
  std::uint32_t replicas = 0;
  int used = 0;
  for (std::size_t node = 0; node < nodes_; ++node) {
    replicas += cells[node];
    used += cells[node] > 0;
  }
  if (replicas <= static_cast<std::uint32_t>(max_replicas) && used <= max_nodes_) return;
  random.shuffle(order_);
  int left = max_replicas, places = max_nodes_;
  for (const std::uint32_t node : order_) {
    if (cells[node] == 0) continue;
    cells[node] = static_cast<Count>(places > 0 ? std::min<int>(cells[node], left) : 0);
    left -= cells[node];
    places -= cells[node] > 0;
  }
}

// Enforces the nodes' capacities; earlier jobs take precedence. A job that is left with fewer replicas than its minimum
// loses all of them.
void Genome::respect_nodes(Individual& individual) {
  free_ = capacity_;
  for (std::size_t index = 0; index < jobs(); ++index) {
    Count* cells = row(individual, index);
    const std::vector<std::int64_t>& demand = job(index).demand;
    int replicas = 0;
    for (std::size_t node = 0; node < nodes_; ++node) {
      if (cells[node] == 0) continue;
      std::int64_t* free = free_.data() + node * types_;
      std::int64_t fitting = cells[node];
      for (std::size_t type = 0; type < types_; ++type)
        if (demand[type] > 0) fitting = std::min(fitting, quotient(free[type], demand[type]));
      cells[node] = static_cast<Count>(fitting);
      replicas += cells[node];
      for (std::size_t type = 0; type < types_; ++type) free[type] -= fitting * demand[type];
    }
    if (replicas < job(index).min_replicas) std::fill_n(cells, nodes_, Count{0});
  }
}

void Genome::evaluate(Individual& individual) {
  double sum = pinned_value_;
  std::vector<double> progress = pinned_progress_;
  open_.assign(nodes_, 0);  // set for nodes in use
  for (std::size_t index = 0; index < jobs(); ++index) {
    const Count* cells = individual.cells.data() + index * nodes_;
    std::size_t replicas = 0, used = 0;
    for (std::size_t node = 0; node < nodes_; ++node) {
      replicas += cells[node];
      used += cells[node] > 0;
      open_[node] |= cells[node] > 0;
    }
    const SearchJob& each = job(index);
    if (std::equal(cells, cells + nodes_, base_.data() + index * nodes_)) {
      sum += each.keep;
    } else {
      sum += (used > 1 ? each.many_nodes : each.one_node)[replicas];
    }
    if (replicas == 0) continue;
    const double speedup = problem_.speedups[movable_[index]](used, replicas);
    for (std::size_t type = 0; type < types_; ++type)
      progress[type] += speedup * static_cast<double>(each.demand[type]);
  }
  double utility = 0;
  for (std::size_t type = 0; type < types_; ++type) {
    double total = 0;
    for (std::size_t node = 0; node < nodes_; ++node)
      if (open_[node] || pinned_use_[node * types_ + type] > 0)
        total += static_cast<double>(problem_.search.nodes[node].capacity[type]);
    if (total > 0) utility = std::max(utility, progress[type] / total);
  }
  individual.objectives = {-mean_.mean(sum, problem_.search.jobs.size()), -utility};
}

}  // namespace adaptdl::sched
