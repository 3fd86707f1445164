#include "tuner/study_view.h"

#include <fmt/format.h>

#include <cmath>

#include "adaptdl/error.h"
#include "tune/pruner/rungs.h"

namespace adaptdl::sched::tune {

const Study& stored_study(const Journal& journal, const std::string& name) {
  const Study* const found = journal.find(name);
  if (found == nullptr) throw Error(fmt::format("study '{}' was deleted from its storage", name));
  return *found;
}

const Trial& trial_at(const Study& study, int number) { return study.trials.at(static_cast<std::size_t>(number)); }

std::int64_t integer_attribute(const Trial& trial, const char* key) {
  const auto found = trial.user_attributes.find(key);
  return found != trial.user_attributes.end() && found->second.is_number_integer() ? found->second.get<std::int64_t>()
                                                                                   : 0;
}

Study sampled_view(const Study& study) {
  Study view = study;
  for (Trial& trial : view.trials)
    if (is_paused(trial)) trial.state = TrialState::kPruned;
  return view;
}

std::optional<std::int64_t> last_step(const Trial& trial) {
  if (trial.intermediate.empty()) return {};
  if (trial.user_attributes.contains(kLastStep))
    if (const auto last = trial.intermediate.find(integer_attribute(trial, kLastStep));
        last != trial.intermediate.end())
      return last->first;
  return trial.intermediate.rbegin()->first;
}

std::optional<double> last_value(const Trial& trial) {
  const auto step = last_step(trial);
  return step ? std::optional(trial.intermediate.at(*step)) : std::nullopt;
}

const Trial* best_trial(const Study& study) {
  const Trial* best = nullptr;
  for (const TrialState state : {TrialState::kComplete, TrialState::kPruned}) {
    for (const Trial& trial : study.trials) {
      if (trial.state != state || trial.values.empty() || std::isnan(trial.values.front())) continue;
      if (best == nullptr || is_better(trial.values.front(), best->values.front(), study.directions.front()))
        best = &trial;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

}  // namespace adaptdl::sched::tune
