#include "tune/sampler/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "adaptdl/error.h"
#include "tune/sampler/parzen_kernels.h"
#include "tune/sampler/trial_split.h"
#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune {
namespace {

using Trials = std::vector<const Trial*>;
using Counts = std::vector<double>;     // number of trials at each place of a parameter's range
using Densities = std::vector<double>;  // probability of each place; the sum is 1

constexpr std::uint64_t kMaxPlaces = 50;

// The places 0, 1, ... of a parameter, which are equally spaced in its range or in the logarithm of its range.
struct Places {
  double low = 0, high = 1;
  bool log = false;
  std::size_t count = 0;

  // Returns the place nearest to the number; a number midway between two places is assigned to the lower one.
  std::size_t of(double number) const {
    const double width = (high - low) / static_cast<double>(count - 1);
    const double place = std::ceil(((log ? portable::log(number) : number) - low) / width - 0.5);
    return static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(count - 1)));
  }
};

Places places_of(double low, double high, bool log, std::uint64_t count) {
  return {log ? portable::log(low) : low, log ? portable::log(high) : high, log,
          static_cast<std::size_t>(std::min(count, kMaxPlaces))};
}

Places places(const FloatRange& range) {
  if (!range.step) return places_of(range.low, range.high, range.log, kMaxPlaces);
  const std::uint64_t count = *cardinality(range);
  return places_of(range.low, range.low + static_cast<double>(count - 1) * *range.step, false, count);
}

Places places(const IntRange& range) {
  const auto low = static_cast<double>(range.low);
  const std::uint64_t count = *cardinality(range);
  if (!range.log)
    return places_of(low, low + static_cast<double>(count - 1) * static_cast<double>(range.step), false, count);
  // The number of places is the binary logarithm of the number of values, rounded up, plus one.
  return places_of(low, static_cast<double>(range.high), true,
                   static_cast<std::uint64_t>(std::bit_width(count - 1)) + 1);
}

Places places(const Choice& choice) {
  return {0, static_cast<double>(choice.values.size() - 1), false, choice.values.size()};
}

Counts count_places(const std::string& parameter, const Distribution& distribution, const Trials& trials) {
  const Places range = std::visit([](const auto& each) { return places(each); }, distribution);
  Counts counts(range.count, 0);
  for (const Trial* trial : trials) ++counts[range.of(to_internal(distribution, trial->parameters.at(parameter)))];
  return counts;
}

// Returns the standard deviation that all kernels have, in places, by Scott's rule (Scott, "Multivariate Density
// Estimation", 1992). The minimum is the deviation at which nine tenths of a kernel's mass are within its own place.
double bandwidth(const Counts& counts) {
  constexpr double kMinDeviation = 0.5 / 1.64, kQuartilesApart = 1.34;  // from quantiles of the normal distribution
  double total = 0, sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    sum += counts[i] * static_cast<double>(i);
  }
  const double mean = sum / total;
  double squares = 0, seen = 0;
  std::size_t last = 0;
  std::optional<std::size_t> lower, upper;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    last = i;
    seen += counts[i];
    squares += counts[i] * (static_cast<double>(i) - mean) * (static_cast<double>(i) - mean);
    if (!lower && seen >= std::floor(total / 4)) lower = i;
    if (!upper && seen > std::floor(total * 3 / 4)) upper = i;
  }
  const double deviation = std::sqrt(squares / std::max(1.0, total - 1));
  const auto quartiles = static_cast<double>(upper.value_or(last) - lower.value_or(0));
  return std::max(kMinDeviation, 1.059 * std::min(quartiles / kQuartilesApart, deviation) * std::pow(total, -0.2));
}

// Adds up a kernel around each observed place, weighted by its number of trials, and a prior kernel that is as wide as
// the range.
Densities number_densities(const Counts& counts) {
  const auto size = static_cast<double>(counts.size());
  const double width = bandwidth(counts);
  Densities densities(counts.size(), 0);
  double total = 0;
  const auto add = [&](double weight, double mean, double deviation) {
    total += weight;
    const auto mass = [&](double from, double to) {
      return portable::normal_mass((from - mean) / deviation, (to - mean) / deviation);
    };
    const double inside = mass(-0.5, size - 0.5);
    for (std::size_t i = 0; i < densities.size(); ++i)
      densities[i] += weight * mass(static_cast<double>(i) - 0.5, static_cast<double>(i) + 0.5) / inside;
  };
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) add(counts[i], static_cast<double>(i), width);
  add(1, (size - 1) / 2, size);
  for (double& each : densities) each /= total;
  return densities;
}

Densities choice_densities(const Distribution& distribution, const Counts& counts) {
  std::vector<double> observed, weights;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    observed.push_back(static_cast<double>(i));
    weights.push_back(counts[i]);
  }
  weights.push_back(1);
  double total = 0;
  for (const double weight : weights) total += weight;
  const auto kernels = make_parzen_kernels(distribution, observed);
  Densities densities;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<double> logs(weights.size(), 0);
    kernels->add_log_density(static_cast<double>(i), logs);
    double sum = 0;
    for (std::size_t kernel = 0; kernel < logs.size(); ++kernel) sum += weights[kernel] * portable::exp(logs[kernel]);
    densities.push_back(sum / total);
  }
  return densities;
}

Densities densities_of(const std::string& parameter, const Distribution& distribution, const Trials& trials) {
  const Counts counts = count_places(parameter, distribution, trials);
  Densities densities =
      std::holds_alternative<Choice>(distribution) ? choice_densities(distribution, counts) : number_densities(counts);
  for (double& each : densities) each += 1e-12;  // same as in Optuna
  return densities;
}

double divergence(const Densities& best, const Densities& all) {
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) sum += all[i] * (best[i] / all[i] - 1) * (best[i] / all[i] - 1);
  return sum;
}

// The trials in which a parameter has a certain distribution.
struct Regime {
  const Distribution* distribution;
  Trials best, all;
};

std::vector<Regime> regimes(const std::string& parameter, const Trials& trials, const std::set<const Trial*>& best) {
  std::vector<Regime> regimes;
  for (const Trial* trial : trials) {
    const auto found = trial->distributions.find(parameter);
    if (found == trial->distributions.end()) continue;
    auto regime =
        std::ranges::find_if(regimes, [&](const Regime& each) { return *each.distribution == found->second; });
    if (regime == regimes.end()) regime = regimes.emplace(regime, Regime{&found->second, {}, {}});
    regime->all.push_back(trial);
    if (best.contains(trial)) regime->best.push_back(trial);
  }
  return regimes;
}

// Returns the importance up to a factor that is the same for all parameters.
double importance(const std::string& parameter, const Trials& trials, const std::set<const Trial*>& best) {
  double sum = 0;
  for (const Regime& regime : regimes(parameter, trials, best)) {
    if (regime.all.size() < 2 || regime.best.empty() || cardinality(*regime.distribution) == 1) continue;
    const double of_best = static_cast<double>(regime.best.size()) / static_cast<double>(best.size());
    const double of_all = static_cast<double>(regime.all.size()) / static_cast<double>(trials.size());
    sum += of_best * of_best / of_all *
           divergence(densities_of(parameter, *regime.distribution, regime.best),
                      densities_of(parameter, *regime.distribution, regime.all));
  }
  return sum;
}

bool is_compared(const Trial& trial) {
  return trial.state == TrialState::kComplete ? std::isfinite(trial.values.front()) : !trial.intermediate.empty();
}

// Returns the best tenth of the sorted trials, rounded up, and any further trials that are as good as the last of them.
std::set<const Trial*> best_tenth(const Study& study, const Trials& trials) {
  std::size_t count = (trials.size() + 9) / 10;
  const TrialRank last = rank_of(*trials[count - 1], study);
  while (count < trials.size() && rank_of(*trials[count], study) == last) ++count;
  return {trials.begin(), trials.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

Importances parameter_importances(const Study& study) {
  Trials trials = TrialSplit(study, -1).ended;
  std::erase_if(trials, [](const Trial* trial) { return !is_compared(*trial); });
  if (trials.size() < kMinImportanceTrials)
    throw Error(fmt::format("importances require at least {} trials with a value, but study '{}' has {}",
                            kMinImportanceTrials, study.name, trials.size()));
  const auto best = best_tenth(study, trials);
  std::set<std::string> names;
  for (const Trial* trial : trials)
    for (const auto& [name, distribution] : trial->distributions) names.insert(name);
  Importances result{{}, trials.size(), best.size()};
  double sum = 0;
  for (const std::string& name : names) {
    result.parameters.push_back({name, importance(name, trials, best)});
    sum += result.parameters.back().fraction;
  }
  if (!(sum > 0))
    throw Error(
        fmt::format("the {} trials of study '{}' do not differ in results or in parameters, so no parameter is more "
                    "important than another",
                    trials.size(), study.name));
  for (ParameterImportance& each : result.parameters) each.fraction /= sum;
  std::ranges::stable_sort(result.parameters, std::ranges::greater{}, &ParameterImportance::fraction);
  return result;
}

}  // namespace adaptdl::sched::tune
