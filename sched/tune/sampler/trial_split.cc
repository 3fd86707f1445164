#include "tune/sampler/trial_split.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptdl::sched::tune {
namespace {

bool has_result(const Trial& trial) {
  if (trial.state == TrialState::kPruned) return true;
  return trial.state == TrialState::kComplete && !trial.values.empty() && !std::isnan(trial.values.front());
}

std::size_t good_count(std::size_t ended) { return std::min<std::size_t>((ended + 9) / 10, 25); }

}  // namespace

// The first element is true if the trial was pruned; the others compare trials that ended in the same way.
TrialRank rank_of(const Trial& trial, const Study& study) {
  const bool maximize = !study.directions.empty() && study.directions.front() == Direction::kMaximize;
  const double sign = maximize ? -1 : 1;
  if (trial.state == TrialState::kComplete) return {false, sign * trial.values.front(), 0};
  if (trial.intermediate.empty()) return {true, 1, 0};
  const auto& [step, value] = *trial.intermediate.rbegin();
  return {true, -static_cast<double>(step), std::isnan(value) ? std::numeric_limits<double>::infinity() : sign * value};
}

TrialSplit::TrialSplit(const Study& study, int sampled) {
  for (const Trial& trial : study.trials) {
    if (trial.number == sampled) continue;
    if (has_result(trial)) ended.push_back(&trial);
    if (trial.state == TrialState::kRunning) rest.push_back(&trial);
  }
  std::ranges::stable_sort(ended, {}, [&](const Trial* trial) { return rank_of(*trial, study); });
  const auto middle = ended.begin() + static_cast<std::ptrdiff_t>(good_count(ended.size()));
  good.assign(ended.begin(), middle);
  rest.insert(rest.end(), middle, ended.end());
  std::ranges::sort(good, {}, &Trial::number);
  std::ranges::sort(rest, {}, &Trial::number);
}

}  // namespace adaptdl::sched::tune
