#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "adaptdl/error.h"
#include "tune/pruner/rungs.h"
#include "tune/study/space_text.h"

namespace adaptdl::sched::tune {
namespace {

// If this many trials have failed and no trial has reported anything, further trials are expected to fail, too.
constexpr int kMaxEarlyFailures = 5;
constexpr int kMaxRestarts = 3;
constexpr std::chrono::milliseconds kMaxStarting{100};  // after this time, advance() starts no further trials

const Trial& trial_of(const Study& study, int number) { return study.trials.at(static_cast<std::size_t>(number)); }

std::int64_t integer_attribute(const Trial& trial, const char* key) {
  const auto found = trial.user_attributes.find(key);
  return found != trial.user_attributes.end() && found->second.is_number_integer() ? found->second.get<std::int64_t>()
                                                                                   : 0;
}

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

SearchEvent::Kind end_kind(TrialState state) {
  using Kind = SearchEvent::Kind;
  return state == TrialState::kComplete ? Kind::kComplete
         : state == TrialState::kPruned ? Kind::kPruned
                                        : Kind::kFailed;
}

}  // namespace

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

Search::Search(SearchPlan plan, Journal& journal, Sampler& sampler, const Pruner& pruner, TrialRunner& runner,
               Observer observer)
    : plan_(std::move(plan)),
      journal_(journal),
      sampler_(sampler),
      pruner_(pruner),
      runner_(runner),
      observer_(std::move(observer)),
      ledger_(study()),
      shares_(plan_.share, runner) {
  for (const Trial& trial : study().trials) {
    ended_.push_back(is_finished(trial.state));
    if (is_running(trial) && trial.user_attributes.contains(kOwn)) to_continue_[trial.number] = "the study was resumed";
  }
}

const Study& Search::study() const {
  const Study* const found = journal_.find(plan_.study);
  if (found == nullptr) throw Error(fmt::format("study '{}' was deleted from its storage", plan_.study));
  return *found;
}

bool Search::advance(Time now) {
  if (finished_) return false;
  journal_.refresh();
  report_ends();
  const bool news = take_events();
  // Since poll() was called and returned no events, the runner knows that all ends are stored.
  if (!failure_.empty() && !news && !any_active()) throw Error(failure_);
  stop_ended_trials();
  stop_at_limits(now);
  const bool reported = !reported_.empty();
  for (const int number : std::exchange(reported_, {})) judge(number);
  // The time for starts is limited: a sampler may take seconds, during which results and stop requests may arrive.
  const auto until = std::chrono::steady_clock::now() + kMaxStarting;
  while (!stopping_ && start_next() && std::chrono::steady_clock::now() < until) {
  }
  if (!stopping_) share_devices(reported);
  if (any_active() || !failure_.empty()) return true;
  // A study that has nothing left to start is finished even if it has used up its device-hours.
  if (stopping_ && (!used_up_ || has_next())) return false;
  if (gives_up()) {
    failure_ = fmt::format("the first {} trials failed without a result; the last one: {}", failed_, last_failure_);
    return true;
  }
  finish();
  return false;
}

void Search::stop_at_limits(Time now) {
  if (stopping_) return;
  used_up_ = plan_.max_device_seconds && ledger_.total() >= *plan_.max_device_seconds;
  if (plan_.deadline && now >= *plan_.deadline) return stop_at_limit("time limit reached");
  constexpr char kUsedUp[] = "device-hour limit reached";
  if (used_up_ && any_active()) return stop_at_limit(kUsedUp);
  if (used_up_) stop(kUsedUp);
}

// Returns whether a trial could be started or continued if there were no limits. REQUIRES !any_active().
bool Search::has_next() const {
  for (const Trial& trial : study().trials)
    if (trial.state == TrialState::kWaiting || (is_running(trial) && trial.user_attributes.contains(kOwn))) return true;
  const int next = static_cast<int>(study().trials.size());
  if (may_create() && sampler_.sample(plan_.space, sampled_view(study()), next, {})) return true;
  return pruner_.promote(study(), true).has_value();
}

bool Search::any_active() const {
  return std::ranges::any_of(study().trials, [this](const Trial& each) { return runner_.is_active(each.number); });
}

// Trials may fail before others report for the first time, so the search fails only once the running ones have ended.
bool Search::gives_up() const {
  return failed_ >= kMaxEarlyFailures &&
         std::ranges::all_of(study().trials, [](const Trial& each) { return each.intermediate.empty(); });
}

void Search::stop_at_limit(const std::string& reason) {
  SearchEvent event;
  event.kind = SearchEvent::Kind::kStopping;
  event.reason = reason;
  observer_(event);
  stop(reason);
}

void Search::stop(const std::string& reason) {
  stopping_ = true;
  if (stop_reason_.empty()) stop_reason_ = reason;
  for (const Trial& trial : study().trials)
    if (runner_.is_active(trial.number) && leaving_.insert(trial.number).second) runner_.stop(trial.number);
}

// `adaptdl tune stop` and Optuna may end a running trial in the storage.
void Search::stop_ended_trials() {
  for (const Trial& trial : study().trials)
    if (is_finished(trial.state) && runner_.is_active(trial.number) && leaving_.insert(trial.number).second)
      runner_.stop(trial.number);
}

// Reports the trials that have ended since the last call, including those that another process ended.
void Search::report_ends() {
  const auto& trials = study().trials;
  ended_.resize(std::max(ended_.size(), trials.size()));
  for (const Trial& trial : trials) {
    const auto at = static_cast<std::size_t>(trial.number);
    if (ended_[at] || !is_finished(trial.state)) continue;
    ended_[at] = true;
    const auto reason = trial.user_attributes.find(kReason);
    const bool has_reason = reason != trial.user_attributes.end();
    // An Optuna worker stores no reason. `adaptdl tune stop` does, even for a trial that was not started yet.
    if (!has_reason && !trial.user_attributes.contains(kOwn)) continue;
    observer_(trial_event(end_kind(trial.state), trial, has_reason ? to_text(reason->second) : ""));
  }
}

// Returns whether the runner had any events. All results between two ends are stored together.
bool Search::take_events() {
  const std::vector<TrialEvent> events = runner_.poll();
  journal_.begin();
  for (const TrialEvent& event : events) {
    if (const auto* const result = std::get_if<Result>(&event.what)) {
      take_result(event.number, *result);
      continue;
    }
    if (const auto* const usage = std::get_if<RunUsage>(&event.what)) {
      ledger_.take(journal_, study(), trial_of(study(), event.number), *usage);
      continue;
    }
    store_results();
    take_end(event.number, std::get<TrialEnd>(event.what));
    journal_.begin();
  }
  store_results();
  ledger_.confirm(journal_, study());
  return !events.empty();
}

void Search::take_result(int number, const Result& result) {
  const Trial& trial = trial_of(study(), number);
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

// Passes the stored results to the observer, but not those that the storage ignored because another process had ended
// the trial.
void Search::report_results() {
  for (const SearchEvent& event : std::exchange(results_, {}))
    if (trial_of(study(), event.trial).intermediate.contains(*event.step)) observer_(event);
}

// Completes and stores what take_result() began.
void Search::store_results() {
  for (auto& [number, taken] : taken_) {
    if (!std::exchange(taken.is_new, false)) continue;
    const int id = trial_of(study(), number).id;
    journal_.set_trial_attribute(id, kResults, taken.stored);
    if (taken.epoch) journal_.set_trial_attribute(id, kEpoch, *taken.epoch);
    if (taken.keeps_last) journal_.set_trial_attribute(id, kLastStep, taken.last);
  }
  journal_.commit();
  report_results();
  if (study().user_attributes.contains(kFirstRung)) return;
  for (const Trial& trial : study().trials)
    if (const auto first = trial.intermediate.upper_bound(0); first != trial.intermediate.end())
      return journal_.set_study_attribute(study().id, kFirstRung, first->first);
}

void Search::take_end(int number, const TrialEnd& end) {
  decide_end(number, end);
  if (!is_finished(trial_of(study(), number).state)) return;
  taken_.erase(number);
  runner_.release(number);
}

void Search::decide_end(int number, const TrialEnd& end) {
  const bool asked = leaving_.erase(number) > 0;
  to_continue_.erase(number);
  const Trial& trial = trial_of(study(), number);
  if (trial.state == TrialState::kPruned) return runner_.discard(number);
  if (is_finished(trial.state)) return;
  const auto last = last_value(trial);
  if (end.how == TrialEnd::How::kDone) {
    if (!last)
      return end_trial(trial, TrialState::kFailed, fmt::format("metric '{}' was never reported", plan_.metric));
    if (std::isnan(*last))
      return end_trial(trial, TrialState::kFailed, fmt::format("the last value of '{}' is not a number", plan_.metric));
    return end_trial(trial, TrialState::kComplete, "");
  }
  // The trial is paused, or the next search will continue it.
  if (asked || is_paused(trial)) return;
  switch (end.how) {
    case TrialEnd::How::kStopped:
      return end_trial(trial, TrialState::kPruned, "stopped from outside the search");
    case TrialEnd::How::kKilled:
      return continue_killed(trial, end.reason);
    case TrialEnd::How::kNotStarted:
      failure_ = fmt::format("cannot start trial {}: {}", number, end.reason);
      return stop();
    default:
      return end_trial(trial, TrialState::kFailed, end.reason);
  }
}

void Search::continue_killed(const Trial& trial, const std::string& reason) {
  const int number = trial.number;
  const std::int64_t restarts = integer_attribute(trial, kRestarts);
  if (restarts >= kMaxRestarts) return end_trial(trial, TrialState::kFailed, reason);
  journal_.set_trial_attribute(trial.id, kRestarts, restarts + 1);
  to_continue_[number] = reason;
}

void Search::end_trial(const Trial& trial, TrialState state, const std::string& reason) {
  const int id = trial.id;
  auto value = state == TrialState::kFailed ? std::nullopt : last_value(trial);
  if (value && std::isnan(*value)) value.reset();
  journal_.begin();
  journal_.set_trial_attribute(id, kReason, reason);
  const bool ended = journal_.finish(id, state, value);
  journal_.commit();
  report_ends();
  if (!ended || state != TrialState::kFailed) return;
  ++failed_;
  last_failure_ = reason;
}

void Search::judge(int number) {
  const Trial& trial = trial_of(study(), number);
  if (!is_running(trial) || leaving_.contains(number)) return;
  Judgement judgement = pruner_.judge(study(), trial);
  if (judgement.reason.empty()) return;
  if (judgement.verdict == Verdict::kPause)
    if (const auto next = promoted_at_once(trial, judgement.rung))
      judgement = {Verdict::kContinue, next->rung, next->reason};
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
    observer_(trial_event(continues ? SearchEvent::Kind::kAdvanced : SearchEvent::Kind::kPausing,
                          trial_of(study(), number), judgement.reason));
  }
  if (!continues) runner_.stop(number);
}

// Returns whether no trial other than `number`, if given, is active or left to start.
bool Search::nothing_else_trains(std::optional<int> number) const {
  return !may_create() && to_continue_.empty() && std::ranges::none_of(study().trials, [&](const Trial& each) {
    return each.state == TrialState::kWaiting || (each.number != number && runner_.is_active(each.number));
  });
}

// Returns the promotion of the trial if, after pausing at `rung`, it would be the next one to continue.
std::optional<Promotion> Search::promoted_at_once(const Trial& trial, int rung) const {
  if (stopping_ || !nothing_else_trains(trial.number)) return {};
  Study view = study();
  auto& attributes = view.trials.at(static_cast<std::size_t>(trial.number)).user_attributes;
  attributes[kActivity] = kPaused;
  attributes[kRung] = rung;
  auto next = pruner_.promote(view, true);
  return next && next->trial == trial.number ? std::move(next) : std::nullopt;
}

// Trials that are about to end keep their devices.
void Search::share_devices(bool reported) {
  std::vector<int> running;
  for (const Trial& trial : study().trials)
    if (runner_.is_active(trial.number) && !leaving_.contains(trial.number)) running.push_back(trial.number);
  shares_.update(study(), running, reported);
}

// Starts or continues one trial if there is room for it. Returns whether a trial was started or continued.
bool Search::start_next() {
  const auto& trials = study().trials;
  const auto all = std::ranges::count_if(trials, [this](const Trial& each) { return runner_.is_active(each.number); });
  // A trial that is saving its checkpoint ends soon, and another one can already wait for its devices.
  const auto busy = std::ranges::count_if(
      trials, [this](const Trial& each) { return runner_.is_active(each.number) && !leaving_.contains(each.number); });
  if (busy >= plan_.parallel || all >= 2 * plan_.parallel || gives_up()) return false;
  if (start_left()) return true;
  const bool waits = std::ranges::any_of(trials, [](const Trial& each) { return each.state == TrialState::kWaiting; });
  const auto is_active = [this](int number) { return runner_.is_active(number); };
  if (const auto next = pruner_.promote(study(), nothing_else_trains(), is_active)) {
    const int id = trial_of(study(), next->trial).id;
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

bool Search::may_create() const { return !exhausted_ && static_cast<int>(study().trials.size()) < plan_.trials; }

// Continues a trial of an earlier search, or one whose process was killed.
bool Search::start_left() {
  for (const auto& [number, why] : std::map(to_continue_)) {
    // The end of its last run has not been delivered yet.
    if (runner_.is_active(number)) continue;
    to_continue_.erase(number);
    if (!is_running(trial_of(study(), number))) continue;
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
  const Values before = trial_of(study(), number).parameters;
  Values values = complete_parameters(number, std::move(drawn));
  using Kind = SearchEvent::Kind;
  observer_(trial_event(values == before ? Kind::kContinued : Kind::kStarted, trial_of(study(), number), why));
  values.insert(plan_.space.fixed.begin(), plan_.space.fixed.end());
  runner_.start(number, values);
  shares_.started(number);
  started_ = true;
}

// Draws the parameters that the trial does not have yet, and returns all of its parameters. A new trial has none, but
// `drawn` may already contain them. A trial of a search that was killed may lack some.
Values Search::complete_parameters(int number, std::optional<Values> drawn) {
  const Trial& trial = trial_of(study(), number);
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

void Search::finish() {
  // Trials that are still paused were never promoted.
  for (std::size_t i = 0; i < study().trials.size(); ++i) {
    const Trial& trial = study().trials[i];
    if (!is_paused(trial)) continue;
    const auto reason = trial.user_attributes.find(kReason);
    end_trial(trial, TrialState::kPruned, reason == trial.user_attributes.end() ? "" : to_text(reason->second));
  }
  // No trial will continue from the checkpoints of the other trials.
  for (const Trial& trial : study().trials)
    if (trial.state != TrialState::kComplete) runner_.discard(trial.number);
  finished_ = true;
}

}  // namespace adaptdl::sched::tune
