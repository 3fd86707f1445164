#include "tune/pruner/asha.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/counted.h"
#include "tune/pruner/rungs.h"

namespace adaptdl::sched::tune {
namespace {

int allowed_rung(const Trial& trial, int bracket) {
  const auto kept = trial.user_attributes.find(kRung);
  return kept != trial.user_attributes.end() && kept->second.is_number_integer() ? kept->second.get<int>() : bracket;
}

// A trial's place among the trials of its bracket that have reached a rung.
struct Standing {
  std::size_t place = 0, of = 0;  // the best of the `of` trials has place 0
  std::size_t above = 0;          // number of trials that have been promoted from the rung
  double value = 0;

  // Trials that were promoted earlier take up places, even if they are no longer among the best. If they have taken all
  // places, only the best trial of all is promoted.
  bool promoted(int factor) const {
    const std::size_t places = of / static_cast<std::size_t>(factor);
    return !std::isnan(value) && place < places && (above < places || place == 0);
  }
};

std::vector<Ranked> at_rung(const Study& study, const std::vector<int>& brackets, int bracket, const Rungs& rungs,
                            int rung) {
  std::vector<Ranked> ranked;
  for (const Trial& trial : study.trials) {
    if (brackets[static_cast<std::size_t>(trial.number)] != bracket) continue;
    if (const auto value = rungs.value(trial, rung)) ranked.push_back({&trial, *value});
  }
  rank(ranked, study.directions.front());
  return ranked;
}

// Returns how many trials of the bracket were promoted from the rung. A failed trial frees its place.
std::size_t promoted_from(const Study& study, const std::vector<int>& brackets, int bracket, int rung) {
  return static_cast<std::size_t>(std::ranges::count_if(study.trials, [&](const Trial& trial) {
    return brackets[static_cast<std::size_t>(trial.number)] == bracket && allowed_rung(trial, bracket) > rung &&
           trial.state != TrialState::kFailed;
  }));
}

std::string describe(const Standing& standing, int rung, double step) {
  return fmt::format("place {} of {} at rung {} (step {:.0f})", standing.place + 1, standing.of, rung, step);
}

struct Paused {
  const Trial* trial = nullptr;
  int rung = 0;
  Standing standing;
};

bool has_completed(const Study& study) {
  return std::ranges::any_of(study.trials, [](const Trial& each) { return each.state == TrialState::kComplete; });
}

}  // namespace

std::vector<int> assign_brackets(std::size_t count, int brackets, int factor) {
  std::vector<double> share, due(static_cast<std::size_t>(brackets), 0);
  double all = 0;
  for (int b = 0; b < brackets; ++b) all += share.emplace_back(std::pow(factor, brackets - 1 - b) / (brackets - b));
  std::vector<int> assigned;
  while (assigned.size() < count) {
    for (std::size_t b = 0; b < due.size(); ++b) due[b] += share[b] / all;
    const auto next = std::ranges::max_element(due);
    *next -= 1;
    assigned.push_back(static_cast<int>(next - due.begin()));
  }
  return assigned;
}

Judgement Asha::judge(const Study& study, const Trial& trial) const {
  const std::vector<int> brackets = assign_brackets(study.trials.size(), brackets_, options_.factor);
  const int bracket = brackets[static_cast<std::size_t>(trial.number)];
  const Rungs rungs(study, options_.factor, options_.first_rung);
  const int allowed = allowed_rung(trial, bracket), reached = rungs.highest(trial);
  if (reached < allowed) return {Verdict::kContinue, allowed, ""};
  const std::vector<Ranked> ranked = at_rung(study, brackets, bracket, rungs, reached);
  const auto place = std::ranges::find(ranked, trial.number, [](const Ranked& each) { return each.trial->number; });
  const Standing own{static_cast<std::size_t>(place - ranked.begin()), ranked.size(),
                     promoted_from(study, brackets, bracket, reached), place->value};
  const std::string reason = describe(own, reached, rungs.step(reached));
  if (own.promoted(options_.factor)) return {Verdict::kContinue, reached + 1, reason};
  const bool late = own.place < own.of / static_cast<std::size_t>(options_.factor) && !std::isnan(own.value);
  return {Verdict::kPause, reached,
          late ? fmt::format("{}, after {}", reason, counted(own.above, "promotion")) : reason};
}

std::optional<Promotion> Asha::promote(const Study& study, bool last, const std::function<bool(int)>& busy) const {
  const std::vector<int> brackets = assign_brackets(study.trials.size(), brackets_, options_.factor);
  const Rungs rungs(study, options_.factor, options_.first_rung);
  std::map<std::pair<int, int>, std::vector<const Trial*>> waiting;  // paused trials, by rung and bracket
  for (const Trial& trial : study.trials) {
    const int bracket = brackets[static_cast<std::size_t>(trial.number)];
    const int rung = allowed_rung(trial, bracket);
    if (is_paused(trial) && !(busy && busy(trial.number)) && rungs.value(trial, rung))
      waiting[{rung, bracket}].push_back(&trial);
  }
  std::vector<Paused> paused;
  for (const auto& [at, trials] : waiting) {
    const std::vector<Ranked> ranked = at_rung(study, brackets, at.second, rungs, at.first);
    const std::size_t above = promoted_from(study, brackets, at.second, at.first);
    std::map<const Trial*, std::size_t> places;
    for (std::size_t place = 0; place < ranked.size(); ++place) places[ranked[place].trial] = place;
    for (const Trial* const trial : trials) {
      const std::size_t place = places.at(trial);
      paused.push_back({trial, at.first, {place, ranked.size(), above, ranked[place].value}});
    }
  }
  std::ranges::sort(paused, {}, [](const Paused& each) { return each.trial->number; });
  // The highest rung comes first, and within a rung, the best trial.
  std::ranges::stable_sort(paused, [&](const Paused& a, const Paused& b) {
    return a.rung != b.rung ? a.rung > b.rung : is_better(a.standing.value, b.standing.value, study.directions.front());
  });
  const auto next =
      std::ranges::find_if(paused, [this](const Paused& each) { return each.standing.promoted(options_.factor); });
  if (next != paused.end())
    return Promotion{next->trial->number, next->rung + 1, describe(next->standing, next->rung, rungs.step(next->rung))};
  if (!last || has_completed(study) || paused.empty() || std::isnan(paused.front().standing.value)) return {};
  const Paused& best = paused.front();
  return Promotion{best.trial->number, kLastRung,
                   "the best so far: " + describe(best.standing, best.rung, rungs.step(best.rung))};
}

}  // namespace adaptdl::sched::tune
