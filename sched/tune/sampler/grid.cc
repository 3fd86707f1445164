#include "tune/sampler/grid.h"

#include <bit>
#include <set>

#include "tune/sampler/combinations.h"
#include "tune/study/random_bits.h"

namespace adaptdl::sched::tune {
namespace {

// Returns the position of an index in a random order of [0, size). A Feistel network permutes the numbers with an even
// number of bits (Luby and Rackoff, "How to construct pseudorandom permutations", 1988). Results that are not below the
// size are permuted again until they are (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed) {
  constexpr std::uint64_t kRounds = 6;
  const int half = (static_cast<int>(std::bit_width(size)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (RandomBits({seed, round, right}).next() & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

// Returns a trial's parameters, rounded to the grid. Values that another program has stored may differ from those of
// the grid in their last bits.
Values on_grid(const Space& space, const Trial& trial) {
  Values values;
  for (const auto& [name, value] : trial.parameters) {
    const Parameter* parameter = space.find(name);
    const bool known = parameter != nullptr && contains(parameter->distribution, value);
    values[name] = known ? from_internal(parameter->distribution, to_internal(parameter->distribution, value)) : value;
  }
  return values;
}

}  // namespace

std::optional<Values> GridSampler::sample(const Space& space, const Study& study, int number, const Values& given) {
  const Combinations combinations(space, given);
  std::set<Values> tried;
  for (const Trial& trial : study.trials)
    if (trial.state != TrialState::kWaiting && trial.number != number) tried.insert(on_grid(space, trial));
  // The combination at `start` is untried unless trials were enqueued or sampled by another sampler.
  const std::uint64_t size = combinations.size(), start = static_cast<std::uint64_t>(number) % size;
  for (std::uint64_t i = 0; i < size; ++i) {
    Values values = combinations.at(permuted((start + i) % size, size, seed_));
    if (!tried.contains(values)) return values;
  }
  if (given.empty()) return {};
  return combinations.at(permuted(start, size, seed_));
}

}  // namespace adaptdl::sched::tune
