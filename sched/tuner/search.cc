#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "adaptdl/error.h"
#include "tune/study/space_text.h"
#include "tuner/study_view.h"

namespace adaptdl::sched::tune {
namespace {

// If this many trials have failed and no trial has reported anything, further trials are expected to fail, too.
constexpr int kMaxEarlyFailures = 5;
constexpr int kMaxRestarts = 3;
constexpr std::chrono::milliseconds kMaxStarting{100};  // after this time, advance() starts no further trials

SearchEvent::Kind end_kind(TrialState state) {
  using Kind = SearchEvent::Kind;
  return state == TrialState::kComplete ? Kind::kComplete
         : state == TrialState::kPruned ? Kind::kPruned
                                        : Kind::kFailed;
}

}  // namespace

Search::Search(SearchPlan plan, Journal& journal, Sampler& sampler, const Pruner& pruner, TrialRunner& runner,
               SearchObserver observer)
    : plan_(std::move(plan)),
      journal_(journal),
      sampler_(sampler),
      pruner_(pruner),
      runner_(runner),
      observer_(std::move(observer)),
      ledger_(study()),
      results_(journal, plan_.study, observer_),
      shares_(plan_.share, runner) {
  for (const Trial& trial : study().trials) {
    ended_.push_back(is_finished(trial.state));
    if (is_running(trial) && trial.user_attributes.contains(kOwn)) to_continue_[trial.number] = "the study was resumed";
  }
}

const Study& Search::study() const { return stored_study(journal_, plan_.study); }

bool Search::advance(Time now) {
  if (finished_) return false;
  journal_.refresh();
  report_ends();
  const bool news = take_events();
  // Since poll() was called and returned no events, the runner knows that all ends are stored.
  if (!failure_.empty() && !news && !any_active()) throw Error(failure_);
  stop_ended_trials();
  stop_at_limits(now);
  const std::set<int> reported = results_.take_reported();
  for (const int number : reported) judge(number);
  // The time for starts is limited: a sampler may take seconds, during which results and stop requests may arrive.
  const auto until = std::chrono::steady_clock::now() + kMaxStarting;
  while (!stopping_ && start_next() && std::chrono::steady_clock::now() < until) {
  }
  if (!stopping_) share_devices(!reported.empty());
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
      results_.take(event.number, *result);
      continue;
    }
    if (const auto* const usage = std::get_if<RunUsage>(&event.what)) {
      ledger_.take(journal_, study(), trial_at(study(), event.number), *usage);
      continue;
    }
    results_.store();
    take_end(event.number, std::get<TrialEnd>(event.what));
    journal_.begin();
  }
  results_.store();
  ledger_.confirm(journal_, study());
  return !events.empty();
}

void Search::take_end(int number, const TrialEnd& end) {
  decide_end(number, end);
  if (!is_finished(trial_at(study(), number).state)) return;
  results_.forget(number);
  runner_.release(number);
}

void Search::decide_end(int number, const TrialEnd& end) {
  const bool asked = leaving_.erase(number) > 0;
  to_continue_.erase(number);
  const Trial& trial = trial_at(study(), number);
  if (trial.state == TrialState::kPruned) return runner_.discard(number);
  if (is_finished(trial.state)) return;
  const auto last = last_value(trial);
  if (end.how == TrialEnd::How::kDone) {
    if (!last)
      return end_trial(trial, TrialState::kFailed, fmt::format("metric '{}' was never reported", plan_.metric));
    if (std::isnan(*last))
      return end_trial(trial, TrialState::kFailed, fmt::format("the last value of metric '{}' is NaN", plan_.metric));
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
  const Trial& trial = trial_at(study(), number);
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
                          trial_at(study(), number), judgement.reason));
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

bool Search::may_create() const { return !exhausted_ && static_cast<int>(study().trials.size()) < plan_.trials; }

void Search::finish() {
  // Trials that are still paused were never promoted.
  for (std::size_t i = 0; i < study().trials.size(); ++i) {
    const Trial& trial = study().trials[i];
    if (!is_paused(trial)) continue;
    const auto reason = trial.user_attributes.find(kReason);
    end_trial(trial, TrialState::kPruned, reason == trial.user_attributes.end() ? "" : to_text(reason->second));
  }
  // Only the checkpoints of completed trials are kept, because no trial will continue.
  for (const Trial& trial : study().trials)
    if (trial.state != TrialState::kComplete) runner_.discard(trial.number);
  finished_ = true;
}

}  // namespace adaptdl::sched::tune
