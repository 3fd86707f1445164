#include "tuner/search.h"

#include <algorithm>
#include <utility>

#include "tuner/study_view.h"

namespace adaptdl::sched::tune {
namespace {

// Returns the values that `adaptdl tune enqueue` or Optuna has specified for a waiting trial.
Values given_values(const Space& space, const Trial& trial) {
  Values given;
  const auto fixed = trial.system_attributes.find("fixed_params");
  if (fixed == trial.system_attributes.end() || !fixed->second.is_object()) return given;
  for (const auto& [name, value] : fixed->second.items()) {
    const Parameter* const parameter = space.find(name);
    if (parameter != nullptr && contains(parameter->distribution, value)) given[name] = value;
  }
  return given;
}

}  // namespace

// Starts or continues one trial if there is room for it. Returns whether a trial was started or continued.
bool Search::start_next() {
  const auto& trials = study().trials;
  const auto all = std::ranges::count_if(trials, [this](const Trial& each) { return runner_.is_active(each.number); });
  // A trial that is saving its checkpoint will end soon, and another trial can already wait for its devices.
  const auto busy = std::ranges::count_if(
      trials, [this](const Trial& each) { return runner_.is_active(each.number) && !leaving_.contains(each.number); });
  if (busy >= plan_.parallel || all >= 2 * plan_.parallel || gives_up()) return false;
  if (start_left()) return true;
  const bool waits = std::ranges::any_of(trials, [](const Trial& each) { return each.state == TrialState::kWaiting; });
  const auto is_active = [this](int number) { return runner_.is_active(number); };
  if (const auto next = pruner_.promote(study(), nothing_else_trains(), is_active)) {
    const int id = trial_at(study(), next->trial).id;
    journal_.begin();
    journal_.set_trial_attribute(id, kActivity, "running");
    journal_.set_trial_attribute(id, kRung, next->rung);
    journal_.set_trial_attribute(id, kReason, next->reason);
    journal_.commit();
    start(next->trial, {}, next->reason);
    return true;
  }
  return (waits || may_create()) && start_new();
}

// Continues a trial of an earlier search, or one whose process was killed.
bool Search::start_left() {
  for (const auto& [number, why] : std::map(to_continue_)) {
    // The end of its last run has not been delivered yet.
    if (runner_.is_active(number)) continue;
    to_continue_.erase(number);
    if (!is_running(trial_at(study(), number))) continue;
    start(number, {}, why);
    return true;
  }
  return false;
}

bool Search::start_new() {
  const Values own{{kOwn, true}};
  if (const auto claimed = journal_.claim_waiting(study().id, own)) {
    start(journal_.trial(*claimed)->number, {}, "");
    return true;
  }
  if (!may_create()) return false;
  const int next = static_cast<int>(study().trials.size());
  auto drawn = sampler_.sample(plan_.space, sampled_view(study()), next, {});
  if (!drawn) {
    exhausted_ = true;
    return false;
  }
  const int id = journal_.create_trial(study().id, TrialState::kRunning, {}, own);
  // Another process may have created a trial in the meantime.
  const int number = journal_.trial(id)->number;
  start(number, number == next ? std::move(drawn) : std::nullopt, "");
  return true;
}

// `why` is the reason why a trial that ran before continues.
void Search::start(int number, std::optional<Values> drawn, const std::string& why) {
  const Values before = trial_at(study(), number).parameters;
  Values values = complete_parameters(number, std::move(drawn));
  using Kind = SearchEvent::Kind;
  observer_(trial_event(values == before ? Kind::kContinued : Kind::kStarted, trial_at(study(), number), why));
  values.insert(plan_.space.fixed.begin(), plan_.space.fixed.end());
  runner_.start(number, values);
  shares_.started(number);
  started_ = true;
}

// Draws the parameters that the trial does not have yet, and returns all of its parameters. A new trial has none, but
// `drawn` may already contain them. A trial of a search that was killed may lack some.
Values Search::complete_parameters(int number, std::optional<Values> drawn) {
  const Trial& trial = trial_at(study(), number);
  const int id = trial.id;
  Values given = given_values(plan_.space, trial);
  for (const auto& [name, value] : trial.parameters) given[name] = value;
  const auto is_missing = [&](const Parameter& each) {
    return applies(each, given) && !trial.parameters.contains(each.name);
  };
  if (std::ranges::none_of(plan_.space.parameters, is_missing)) return trial.parameters;
  if (!drawn) drawn = sampler_.sample(plan_.space, sampled_view(study()), number, given);
  const Values values = drawn.value_or(given);
  const Values before = trial.parameters;
  journal_.begin();
  for (const auto& [name, value] : values)
    if (!before.contains(name)) journal_.set_parameter(id, name, plan_.space.find(name)->distribution, value);
  const SamplerAttributes attributes = drawn ? sampler_.attributes() : SamplerAttributes{};
  for (const auto& [key, value] : attributes.trial) journal_.set_trial_system_attribute(id, key, value);
  for (const auto& [key, value] : attributes.study) journal_.set_study_system_attribute(study().id, key, value);
  journal_.commit();
  return values;
}

}  // namespace adaptdl::sched::tune
