#include "tune/pruner/rungs.h"

#include <algorithm>
#include <cmath>

namespace adaptdl::sched::tune {
namespace {

constexpr double kNear = 0.95;  // a report at this fraction of a rung's step or later belongs to the rung

std::optional<double> first_step(const Study& study) {
  const auto kept = study.user_attributes.find(kFirstRung);
  if (kept != study.user_attributes.end() && kept->second.is_number() && kept->second > 0) return kept->second;
  for (const Trial& trial : study.trials)
    for (const auto& [step, value] : trial.intermediate)
      if (step > 0) return static_cast<double>(step);
  return {};
}

}  // namespace

Rungs::Rungs(const Study& study, int factor, std::optional<double> first)
    : factor_(factor), first_(first ? first : first_step(study)) {}

double Rungs::step(int rung) const { return *first_ * std::pow(factor_, rung); }

std::optional<double> Rungs::value(const Trial& trial, int rung) const {
  if (!first_) return {};
  const auto at = trial.intermediate.lower_bound(static_cast<std::int64_t>(std::ceil(kNear * step(rung))));
  return at == trial.intermediate.end() ? std::nullopt : std::optional(at->second);
}

int Rungs::highest(const Trial& trial) const {
  if (!first_ || trial.intermediate.empty()) return -1;
  const auto last = static_cast<double>(trial.intermediate.rbegin()->first);
  int rung = -1;
  while (last >= std::ceil(kNear * step(rung + 1))) ++rung;
  return rung;
}

bool is_better(double a, double b, Direction direction) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return direction == Direction::kMaximize ? a > b : a < b;
}

void rank(std::vector<Ranked>& trials, Direction direction) {
  std::ranges::stable_sort(
      trials, [direction](const Ranked& a, const Ranked& b) { return is_better(a.value, b.value, direction); });
}

}  // namespace adaptdl::sched::tune
