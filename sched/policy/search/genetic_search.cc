#include "policy/search/genetic_search.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "policy/search/genome.h"
#include "policy/search/nsga2.h"

namespace adaptdl::sched {
namespace {

using nsga2::Objectives;
using nsga2::Random;

constexpr std::size_t kFruitless = 5;  // breeding ends after this many rounds in a row without a new state

using Population = std::vector<Individual>;
using Known = std::unordered_set<std::string_view>;  // states as bytes, owned by the individuals

std::vector<Objectives> objectives_of(const Population& population) {
  std::vector<Objectives> all;
  for (const Individual& each : population) all.push_back(each.objectives);
  return all;
}

void survive(Population& population, std::size_t count, Random& random) {
  Population next;
  for (const nsga2::Standing& each : nsga2::survivors(objectives_of(population), count, random)) {
    next.push_back(std::move(population[each.individual]));
    next.back().crowding = each.crowding;
  }
  population = std::move(next);
}

// Returns up to `count` new states, none of which is in the population.
Population breed(Genome& genome, const Population& population, std::size_t count, Random& random) {
  std::vector<double> crowding;
  Known known;
  for (const Individual& each : population) {
    crowding.push_back(each.crowding);
    known.insert(each.bytes());
  }
  const std::vector<Objectives> objectives = objectives_of(population);
  Population offspring;
  offspring.reserve(count);
  for (std::size_t fruitless = 0; offspring.size() < count && fruitless < kFruitless;) {
    const std::size_t before = offspring.size();
    const std::size_t pairs = (count - before + 1) / 2;
    const auto parents = nsga2::tournaments(objectives, crowding, 2 * pairs, random);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      Individual children[] = {population[parents[2 * pair]], population[parents[2 * pair + 1]]};
      genome.cross(children[0], children[1], random);
      for (Individual& child : children) {
        genome.mutate(child, random);
        genome.repair(child, random);
        if (offspring.size() == count || known.contains(child.bytes())) continue;
        genome.evaluate(child);
        offspring.push_back(std::move(child));
        known.insert(offspring.back().bytes());
      }
    }
    fruitless = offspring.size() == before ? fruitless + 1 : 0;
  }
  return offspring;
}

Population begin(Genome& genome, const PolluxProblem& problem, const std::vector<GeneticState>& start, Random& random) {
  GeneticState previous;
  for (const SearchJob& job : problem.search.jobs) previous.push_back(job.previous);
  Population population;
  population.reserve(std::max<std::size_t>(start.size(), 1));
  Known known;
  for (const GeneticState& state : start.empty() ? std::vector<GeneticState>{previous} : start) {
    Individual individual = genome.encode(state);
    genome.repair(individual, random);
    if (known.contains(individual.bytes())) continue;
    genome.evaluate(individual);
    population.push_back(std::move(individual));
    known.insert(population.back().bytes());
  }
  survive(population, population.size(), random);
  return population;
}

}  // namespace

GeneticResult search_genetic(const PolluxProblem& problem, const PowerMean& mean,
                             const std::vector<GeneticState>& start, const GeneticOptions& options) {
  Genome genome(problem, mean, options.max_nodes);
  Random random(options.seed);
  if (genome.jobs() == 0 || problem.search.nodes.empty()) {
    const GeneticState only = genome.decode(genome.encode(GeneticState(problem.search.jobs.size())));
    return {only, {only}};
  }
  Population population = begin(genome, problem, start, random);
  const auto size = static_cast<std::size_t>(std::max(options.population, 1));
  for (int generation = 1; generation < options.generations; ++generation) {
    Population offspring = breed(genome, population, size, random);
    if (offspring.empty()) break;
    std::ranges::move(offspring, std::back_inserter(population));
    survive(population, size, random);
  }
  GeneticResult result;
  const Individual* best = nullptr;
  for (const Individual& each : population) {
    if (std::ranges::any_of(
            population, [&](const Individual& other) { return nsga2::dominates(other.objectives, each.objectives); }))
      continue;
    result.states.push_back(genome.decode(each));
    if (!best || each.objectives[0] < best->objectives[0]) {
      best = &each;
      result.best = result.states.back();
    }
  }
  return result;
}

}  // namespace adaptdl::sched
