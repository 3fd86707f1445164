#include "tune/pruner/promise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune {
namespace {

// The standard deviation of fewer changes than this is not meaningful.
constexpr std::size_t kMinChanges = 3;
// A report at this fraction of a step or later is treated as a report at the step, because programs report at the ends
// of epochs.
constexpr double kNearStep = 0.95;
// The number of equally likely final values at which a trial's chance is computed.
constexpr int kPoints = 128;
// Once a product of probabilities is below this value, it is not computed further.
constexpr double kNegligible = 1e-12;

// Returns the value, negated if lower is better, so that higher is better.
double oriented(double value, const Study& study) {
  return !study.directions.empty() && study.directions.front() == Direction::kMinimize ? -value : value;
}

Forecast moments(const std::vector<double>& values) {
  Forecast result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.deviation = std::sqrt(squares / (count - 1));
  return result;
}

// Returns by how much the values of other trials, or only of completed ones, changed from `step` to their last step.
std::vector<double> changes_since(const Study& study, const Trial& trial, std::int64_t step, bool completed) {
  std::vector<double> changes;
  const auto at_least = static_cast<std::int64_t>(std::ceil(kNearStep * static_cast<double>(step)));
  for (const Trial& other : study.trials) {
    if (other.number == trial.number || other.state == TrialState::kFailed) continue;
    if (completed && other.state != TrialState::kComplete) continue;
    const auto at = other.intermediate.lower_bound(at_least);
    if (at == other.intermediate.end() || std::next(at) == other.intermediate.end()) continue;
    const double change = oriented(other.intermediate.rbegin()->second, study) - oriented(at->second, study);
    if (std::isfinite(change)) changes.push_back(change);
  }
  return changes;
}

Forecast forecast(const Study& study, const Trial& trial, const Forecast& last_values) {
  const auto& [step, value] = *trial.intermediate.rbegin();
  std::vector<double> changes = changes_since(study, trial, step, true);
  if (changes.size() < kMinChanges) changes = changes_since(study, trial, step, false);
  const Forecast change = changes.size() < kMinChanges ? Forecast{0, last_values.deviation} : moments(changes);
  return {oriented(value, study) + change.mean, change.deviation};
}

double probability_below(const Forecast& forecast, double x) {
  if (forecast.deviation > 0) return portable::normal_cdf((x - forecast.mean) / forecast.deviation);
  return x == forecast.mean ? 0.5 : x > forecast.mean ? 1 : 0;
}

std::optional<double> best_completed(const Study& study) {
  std::optional<double> best;
  for (const Trial& trial : study.trials) {
    if (trial.state != TrialState::kComplete || trial.values.empty() || !std::isfinite(trial.values.front())) continue;
    const double value = oriented(trial.values.front(), study);
    best = std::max(best.value_or(value), value);
  }
  return best;
}

}  // namespace

std::vector<double> chances_of_best(const std::vector<Forecast>& forecasts, std::optional<double> to_beat) {
  if (forecasts.empty()) return {};
  std::vector<double> chances(forecasts.size(), 0);
  double sum = 0;
  for (std::size_t i = 0; i < forecasts.size(); ++i) {
    for (int point = 0; point < kPoints; ++point) {
      const double x = forecasts[i].mean + forecasts[i].deviation * portable::normal_quantile((point + 0.5) / kPoints);
      if (to_beat && !(x > *to_beat)) continue;
      double all_below = 1;
      for (std::size_t j = 0; j < forecasts.size() && all_below > kNegligible; ++j)
        if (j != i) all_below *= probability_below(forecasts[j], x);
      chances[i] += all_below;
    }
    sum += chances[i];
  }
  if (!(sum > 0))
    return to_beat ? chances_of_best(forecasts, {})
                   : std::vector<double>(forecasts.size(), 1 / static_cast<double>(forecasts.size()));
  for (double& chance : chances) chance /= sum;
  return chances;
}

std::map<int, double> promise_weights(const Study& study, const std::vector<int>& running) {
  std::map<int, double> weights;
  std::vector<const Trial*> reported;  // trials whose last value is finite
  std::vector<double> values;
  std::size_t compared = 0;
  for (const int number : running) {
    const Trial& trial = study.trials.at(static_cast<std::size_t>(number));
    weights[number] = trial.intermediate.empty() ? 1 : kMinPromise;
    if (trial.intermediate.empty()) continue;
    ++compared;
    const double value = oriented(trial.intermediate.rbegin()->second, study);
    if (!std::isfinite(value)) continue;
    reported.push_back(&trial);
    values.push_back(value);
  }
  const Forecast last_values = moments(values);
  std::vector<Forecast> forecasts;
  for (const Trial* const trial : reported) forecasts.push_back(forecast(study, *trial, last_values));
  const bool finite = std::ranges::all_of(
      forecasts, [](const Forecast& each) { return std::isfinite(each.mean) && std::isfinite(each.deviation); });
  // If differences of values overflow, or no trial has reported a finite number, all have the same weight.
  if (!finite || reported.empty()) {
    for (auto& [number, weight] : weights) weight = 1;
    return weights;
  }
  const std::vector<double> chances = chances_of_best(forecasts, best_completed(study));
  for (std::size_t i = 0; i < reported.size(); ++i)
    weights[reported[i]->number] = kMinPromise + (1 - kMinPromise) * static_cast<double>(compared) * chances[i];
  return weights;
}

}  // namespace adaptdl::sched::tune
