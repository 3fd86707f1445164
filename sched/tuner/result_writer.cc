#include "tuner/result_writer.h"

#include <algorithm>
#include <utility>

#include "tuner/study_view.h"

namespace adaptdl::sched::tune {

void ResultWriter::take(int number, const Result& result) {
  const Trial& trial = trial_at(stored_study(journal_, study_), number);
  if (is_finished(trial.state)) return;
  const auto [place, is_first] = taken_.try_emplace(number);
  Taken& taken = place->second;
  if (is_first) {
    taken.stored = integer_attribute(trial, kResults);
    taken.keeps_last = trial.user_attributes.contains(kLastStep);
    if (!trial.intermediate.empty()) taken.highest = trial.intermediate.rbegin()->first;
  }
  if (++taken.delivered <= taken.stored) return;
  taken.stored = taken.delivered;
  taken.last = result.step ? *result.step : taken.highest.value_or(0) + 1;
  taken.keeps_last = taken.keeps_last || taken.last < taken.highest.value_or(taken.last);
  taken.highest = std::max(taken.highest.value_or(taken.last), taken.last);
  if (result.epoch) taken.epoch = result.epoch;
  taken.is_new = true;
  results_.push_back({SearchEvent::Kind::kResult, number, trial.parameters, result.value, taken.last, ""});
  reported_.insert(number);
  journal_.report(trial.id, taken.last, result.value);
}

void ResultWriter::store() {
  for (auto& [number, taken] : taken_) {
    if (!std::exchange(taken.is_new, false)) continue;
    const int id = trial_at(stored_study(journal_, study_), number).id;
    journal_.set_trial_attribute(id, kResults, taken.stored);
    if (taken.epoch) journal_.set_trial_attribute(id, kEpoch, *taken.epoch);
    if (taken.keeps_last) journal_.set_trial_attribute(id, kLastStep, taken.last);
  }
  journal_.commit();
  report();
  store_first_rung();
}

// Passes the stored results to the observer, but not those that the storage ignored because another process had ended
// the trial.
void ResultWriter::report() {
  for (const SearchEvent& event : std::exchange(results_, {}))
    if (trial_at(stored_study(journal_, study_), event.trial).intermediate.contains(*event.step)) observer_(event);
}

void ResultWriter::store_first_rung() {
  const Study& study = stored_study(journal_, study_);
  if (study.user_attributes.contains(kFirstRung)) return;
  for (const Trial& trial : study.trials)
    if (const auto first = trial.intermediate.upper_bound(0); first != trial.intermediate.end())
      return journal_.set_study_attribute(study.id, kFirstRung, first->first);
}

std::set<int> ResultWriter::take_reported() { return std::exchange(reported_, {}); }

void ResultWriter::forget(int number) { taken_.erase(number); }

}  // namespace adaptdl::sched::tune
