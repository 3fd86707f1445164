#include "command/tune/search_view.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "command/tune/tune_show.h"
#include "tune/pruner/rungs.h"
#include "tuner/device_ledger.h"
#include "tuner/study_view.h"
#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

constexpr auto kReadStatusesEvery = std::chrono::seconds(1);

std::optional<double> finite_value(const tune::Trial& trial) {
  const auto value = value_of(trial);
  return value && !std::isnan(*value) ? value : std::nullopt;
}

// Returns at most `count` trials that are not running, best first.
std::vector<const tune::Trial*> best_others(const tune::Study& study, std::size_t count) {
  std::vector<std::pair<double, const tune::Trial*>> others;
  for (const tune::Trial& trial : study.trials)
    if (const auto value = finite_value(trial); value && !tune::is_running(trial)) others.emplace_back(*value, &trial);
  count = std::min(count, others.size());
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::partial_sort(others, middle, [&study](const auto& a, const auto& b) {
    return a.first != b.first ? tune::is_better(a.first, b.first, study.directions.front())
                              : a.second->number < b.second->number;
  });
  std::vector<const tune::Trial*> best;
  for (auto each = others.begin(); each != middle; ++each) best.push_back(each->second);
  return best;
}

// Returns the trial that `adaptdl tune best` shows or, if there is none yet, the best trial that has reported a value.
const tune::Trial* best_so_far(const tune::Study& study) {
  if (const auto* const best = tune::best_trial(study)) return best;
  const tune::Trial* best = nullptr;
  double best_value = 0;
  for (const tune::Trial& trial : study.trials) {
    const auto value = trial.state == tune::TrialState::kFailed ? std::nullopt : finite_value(trial);
    if (!value || (best != nullptr && !tune::is_better(*value, best_value, study.directions.front()))) continue;
    best = &trial;
    best_value = *value;
  }
  return best;
}

std::optional<int> rung_of(const tune::Trial& trial) {
  const auto found = trial.user_attributes.find(tune::kRung);
  if (found == trial.user_attributes.end() || !found->second.is_number_integer()) return std::nullopt;
  const int rung = found->second.get<int>();
  return rung == tune::kLastRung ? std::nullopt : std::optional(rung);
}

}  // namespace

SearchView::SearchView(std::string metric, int all, Time started, StatusOf status_of)
    : metric_(std::move(metric)), all_(all), started_(started), status_of_(std::move(status_of)) {}

void SearchView::read_statuses(const tune::Study& study, Time now) {
  if (read_at_ && now - *read_at_ < kReadStatusesEvery) return;
  read_at_ = now;
  std::map<int, Run> before = std::exchange(runs_, {});
  for (const tune::Trial& trial : study.trials) {
    if (!tune::is_running(trial)) continue;
    Run& run = runs_[trial.number] = std::move(before[trial.number]);
    run.status = status_of_(trial.number);
    if (run.status && sched::has_ended(*run.status)) run.status.reset();
    run.left = run.status ? run.time_left.update(*run.status, now) : std::nullopt;
  }
}

TrialRow SearchView::row(const tune::Trial& trial) const {
  TrialRow row;
  row.number = trial.number;
  row.state = state_text(trial);
  row.parameters = parameters_text(trial);
  row.value = value_of(trial);
  row.rung = rung_of(trial);
  const auto run = runs_.find(trial.number);
  if (run == runs_.end() || !run->second.status || !tune::is_running(trial)) return row;
  row.replicas = run->second.status->replicas;
  row.goodput = progress_number(run->second.status->progress, "goodput");
  row.left = run->second.left;
  return row;
}

SearchSnapshot SearchView::snapshot(const tune::Study& study, std::size_t rows, Time now) {
  read_statuses(study, now);
  SearchSnapshot snapshot;
  snapshot.study = study.name;
  snapshot.metric = metric_;
  snapshot.trials = static_cast<int>(study.trials.size());
  snapshot.all = std::max(all_, snapshot.trials);
  snapshot.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  snapshot.device_seconds = tune::device_seconds(study);
  const nlohmann::json counts = count_states(study);
  for (const char* const state : {"running", "paused", "complete", "pruned", "failed"})
    snapshot.counts.push_back({state, counts[state].get<int>()});
  if (const auto* const best = best_so_far(study)) snapshot.best = row(*best);
  for (const tune::Trial& trial : study.trials)
    if (tune::is_running(trial) && snapshot.rows.size() < rows) snapshot.rows.push_back(row(trial));
  for (const auto* const trial : best_others(study, rows - snapshot.rows.size())) snapshot.rows.push_back(row(*trial));
  return snapshot;
}

}  // namespace adaptdl::cli
