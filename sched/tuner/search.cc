#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "adaptdl/error.h"
#include "tune/rungs.h"
#include "tune/space_text.h"

namespace adaptdl::sched::tune {
namespace {

// If so many trials failed and none reported anything, more of them would fail too.
constexpr int kHopeless = 5;

const Trial& trial_of(const Study& study, int number) { return study.trials.at(static_cast<std::size_t>(number)); }

std::optional<double> last_value(const Trial& trial) {
  return trial.intermediate.empty() ? std::nullopt : std::optional(trial.intermediate.rbegin()->second);
}

// What `adaptdl tune enqueue`, or Optuna, gave of a trial that waited.
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

std::string describe(const Values& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, to_text(value));
  return text;
}

}  // namespace

Study sampled_view(const Study& study) {
  Study view = study;
  for (Trial& trial : view.trials)
    if (is_paused(trial)) trial.state = TrialState::kPruned;
  return view;
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

Search::Search(SearchPlan plan, Journal& journal, Sampler& sampler, const Pruner& pruner, TrialRunner& runner,
               std::function<void(std::string_view)> notice)
    : plan_(std::move(plan)),
      journal_(journal),
      sampler_(sampler),
      pruner_(pruner),
      runner_(runner),
      notice_(std::move(notice)) {
  for (const Trial& trial : study().trials)
    if (is_running(trial)) to_continue_.insert(trial.number);
}

const Study& Search::study() const {
  const Study* const found = journal_.find(plan_.study);
  if (found == nullptr) throw Error(fmt::format("study '{}' was deleted from its storage", plan_.study));
  return *found;
}

bool Search::advance(Time now) {
  if (finished_) return false;
  journal_.refresh();
  take_events();
  stop_ended_trials();
  if (plan_.deadline && now >= *plan_.deadline && !stopping_) {
    notice_("the time is over: stopping");
    stop();
  }
  for (const int number : std::exchange(reported_, {})) judge(number);
  while (!stopping_ && start_next()) {
  }
  const bool active =
      std::ranges::any_of(study().trials, [this](const Trial& each) { return runner_.is_active(each.number); });
  if (!active && !failure_.empty()) throw Error(failure_);
  if (!active && !stopping_) finish();
  return active;
}

void Search::stop() {
  stopping_ = true;
  for (const Trial& trial : study().trials)
    if (runner_.is_active(trial.number) && leaving_.insert(trial.number).second) runner_.stop(trial.number);
}

// `adaptdl tune stop` and Optuna may end a trial in the storage.
void Search::stop_ended_trials() {
  for (const Trial& trial : study().trials)
    if (is_finished(trial.state) && runner_.is_active(trial.number) && leaving_.insert(trial.number).second)
      runner_.stop(trial.number);
}

void Search::take_events() {
  for (const TrialEvent& event : runner_.poll()) {
    if (const auto* const result = std::get_if<Result>(&event.what))
      take_result(event.number, *result);
    else
      take_end(event.number, std::get<TrialEnd>(event.what));
  }
}

void Search::take_result(int number, const Result& result) {
  const Trial& trial = trial_of(study(), number);
  if (is_finished(trial.state)) return;
  const auto& known = trial.intermediate;
  const std::int64_t step = result.step ? *result.step : known.empty() ? 1 : known.rbegin()->first + 1;
  const auto same = known.find(step);
  // After a restart from a checkpoint a program reports some steps again.
  if (same != known.end() && (same->second == result.value || std::isnan(result.value))) return;
  const int id = trial.id;
  const bool first = !study().user_attributes.contains(kFirstRung) && step > 0;
  const int study_id = study().id;
  journal_.begin();
  journal_.report(id, step, result.value);
  if (result.epoch) journal_.set_trial_attribute(id, kEpoch, *result.epoch);
  if (first) journal_.set_study_attribute(study_id, kFirstRung, step);
  journal_.commit();
  reported_.insert(number);
}

void Search::take_end(int number, const TrialEnd& end) {
  const bool asked = leaving_.erase(number) > 0;
  const Trial& trial = trial_of(study(), number);
  if (is_finished(trial.state)) return runner_.discard(number);
  const auto last = last_value(trial);
  if (end.how == TrialEnd::How::kDone) {
    if (!last)
      return end_trial(trial, TrialState::kFailed, fmt::format("metric '{}' was never reported", plan_.metric));
    if (std::isnan(*last))
      return end_trial(trial, TrialState::kFailed, fmt::format("the last value of '{}' is not a number", plan_.metric));
    return end_trial(trial, TrialState::kComplete, "");
  }
  // Paused, or to be continued by the next search.
  if (asked) return;
  if (end.how == TrialEnd::How::kStopped)
    return end_trial(trial, TrialState::kPruned, "stopped by a request from outside the search");
  end_trial(trial, TrialState::kFailed, end.reason);
}

void Search::end_trial(const Trial& trial, TrialState state, const std::string& reason) {
  const int id = trial.id, number = trial.number;
  auto value = state == TrialState::kFailed ? std::nullopt : last_value(trial);
  if (value && std::isnan(*value)) value.reset();
  journal_.set_trial_attribute(id, kReason, reason);
  journal_.finish(id, state, value);
  if (state != TrialState::kComplete && !runner_.is_active(number)) runner_.discard(number);
  if (state == TrialState::kComplete)
    return notice_(fmt::format("trial {}: complete, {} {:.6g}", number, plan_.metric, *value));
  notice_(fmt::format("trial {}: {}, {}", number, state == TrialState::kFailed ? "failed" : "pruned", reason));
  const auto& trials = study().trials;
  const bool any_report = std::ranges::any_of(trials, [](const Trial& each) { return !each.intermediate.empty(); });
  if (!any_report && std::ranges::count(trials, TrialState::kFailed, &Trial::state) >= kHopeless) {
    failure_ = fmt::format("the first {} trials failed without a result; the last one: {}", kHopeless, reason);
    stop();
  }
}

void Search::judge(int number) {
  const Trial& trial = trial_of(study(), number);
  if (!is_running(trial) || leaving_.contains(number)) return;
  const Judgement judgement = pruner_.judge(study(), trial);
  if (judgement.reason.empty()) return;
  const int id = trial.id;
  const bool continues = judgement.verdict == Verdict::kContinue;
  if (!continues) leaving_.insert(number);
  if (judgement.verdict == Verdict::kPrune) {
    end_trial(trial, TrialState::kPruned, judgement.reason);
  } else {
    journal_.begin();
    journal_.set_trial_attribute(id, kRung, judgement.rung);
    journal_.set_trial_attribute(id, kReason, judgement.reason);
    if (!continues) journal_.set_trial_attribute(id, kActivity, kPaused);
    journal_.commit();
    notice_(fmt::format("trial {}: {}, {}", number, continues ? "continues" : "paused", judgement.reason));
  }
  if (!continues) runner_.stop(number);
}

// Starts or continues one trial if there is room for it.
bool Search::start_next() {
  const auto& trials = study().trials;
  // A trial that saves its checkpoint leaves soon, and the next one may start up meanwhile.
  const auto busy = std::ranges::count_if(
      trials, [this](const Trial& each) { return runner_.is_active(each.number) && !leaving_.contains(each.number); });
  if (busy >= plan_.parallel) return false;
  for (const int number : to_continue_) {
    if (runner_.is_active(number)) continue;
    to_continue_.erase(number);
    start(number);
    return true;
  }
  const bool waits = std::ranges::any_of(trials, [](const Trial& each) { return each.state == TrialState::kWaiting; });
  const bool active = std::ranges::any_of(trials, [this](const Trial& each) { return runner_.is_active(each.number); });
  if (const auto next = pruner_.promote(study(), !active && !waits && !may_create())) {
    // It may still be about to pause.
    if (runner_.is_active(next->trial)) return false;
    const int id = trial_of(study(), next->trial).id;
    journal_.begin();
    journal_.set_trial_attribute(id, kActivity, "running");
    journal_.set_trial_attribute(id, kRung, next->rung);
    journal_.set_trial_attribute(id, kReason, next->reason);
    journal_.commit();
    notice_(fmt::format("trial {}: continues, {}", next->trial, next->reason));
    start(next->trial);
    return true;
  }
  return (waits || may_create()) && start_new();
}

bool Search::may_create() const { return !exhausted_ && static_cast<int>(study().trials.size()) < plan_.trials; }

bool Search::start_new() {
  if (const auto claimed = journal_.claim_waiting(study().id)) {
    start(journal_.trial(*claimed)->number);
    return true;
  }
  if (!may_create()) return false;
  const int number = static_cast<int>(study().trials.size());
  if (!sampler_.sample(plan_.space, sampled_view(study()), number, {})) {
    exhausted_ = true;
    return false;
  }
  const int id = journal_.create_trial(study().id, TrialState::kRunning);
  start(journal_.trial(id)->number);
  return true;
}

void Search::start(int number) {
  Values values = complete_parameters(number);
  values.insert(plan_.space.fixed.begin(), plan_.space.fixed.end());
  runner_.start(number, values);
}

// Draws what the trial has no value of yet: everything of a new one, and what a search that was killed left out.
Values Search::complete_parameters(int number) {
  const Trial& trial = trial_of(study(), number);
  const int id = trial.id;
  Values given = given_values(plan_.space, trial);
  for (const auto& [name, value] : trial.parameters) given[name] = value;
  const auto is_missing = [&](const Parameter& each) {
    return applies(each, given) && !trial.parameters.contains(each.name);
  };
  if (std::ranges::none_of(plan_.space.parameters, is_missing)) return trial.parameters;
  const auto drawn = sampler_.sample(plan_.space, sampled_view(study()), number, given);
  const Values values = drawn.value_or(given);
  const Values before = trial.parameters;
  journal_.begin();
  for (const auto& [name, value] : values)
    if (!before.contains(name)) journal_.set_parameter(id, name, plan_.space.find(name)->distribution, value);
  journal_.commit();
  notice_(fmt::format("trial {}: {}", number, describe(values)));
  return values;
}

void Search::finish() {
  // Those that were never promoted.
  for (std::size_t i = 0; i < study().trials.size(); ++i) {
    const Trial& trial = study().trials[i];
    if (!is_paused(trial)) continue;
    const auto reason = trial.user_attributes.find(kReason);
    end_trial(trial, TrialState::kPruned, reason == trial.user_attributes.end() ? "" : to_text(reason->second));
  }
  // Those that others ended while they had no process.
  for (const Trial& trial : study().trials)
    if (trial.state != TrialState::kComplete) runner_.discard(trial.number);
  finished_ = true;
}

}  // namespace adaptdl::sched::tune
