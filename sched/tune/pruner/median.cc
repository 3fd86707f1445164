#include "tune/pruner/median.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/counted.h"
#include "tune/pruner/rungs.h"

namespace adaptdl::sched::tune {
namespace {

std::optional<double> best_value(const Trial& trial, Direction direction) {
  std::optional<double> best;
  for (const auto& [step, value] : trial.intermediate)
    if (!best || is_better(value, *best, direction)) best = value;
  return best;
}

// Returns the values, except NaN, that the completed trials reported first at 95% of `step` or later.
std::vector<double> completed_at(const Study& study, double step) {
  std::vector<double> values;
  for (const Trial& trial : study.trials) {
    if (trial.state != TrialState::kComplete) continue;
    const auto at = trial.intermediate.lower_bound(static_cast<std::int64_t>(std::ceil(0.95 * step)));
    if (at != trial.intermediate.end() && !std::isnan(at->second)) values.push_back(at->second);
  }
  return values;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

Judgement Median::judge(const Study& study, const Trial& trial) const {
  const Direction direction = study.directions.front();
  const auto best = best_value(trial, direction);
  const auto completed = std::ranges::count(study.trials, TrialState::kComplete, &Trial::state);
  if (!best || completed < options_.startup_trials) return {};
  const std::int64_t step = trial.intermediate.rbegin()->first;
  const std::vector<double> others = completed_at(study, static_cast<double>(step));
  if (others.empty()) return {};
  const double median = median_of(others);
  if (!is_better(median, *best, direction)) return {};
  return {Verdict::kPrune, 0,
          fmt::format("best value {:.6g} is worse than the median {:.6g} of {} at step {}", *best, median,
                      counted(others.size(), "completed trial"), step)};
}

}  // namespace adaptdl::sched::tune
