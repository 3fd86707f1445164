// A search whose trials simulate training, one step per poll(). The search may be killed; `Kept` contains what outlives
// it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "temporary_directory.h"
#include "tuner/search.h"

namespace adaptdl::sched::tune::testing {

struct Kept {
  std::map<int, int> checkpoint;               // the step of each trial that has a checkpoint
  std::map<int, std::vector<Result>> results;  // results of each trial, in order
  std::map<int, int> steps_trained;            // total steps of each trial
  std::map<int, RunUsage> usage;               // usage of runs whose last value may not be stored yet
  double device_seconds = 0;                   // of all runs
  int runs = 0;
};

class FakeRunner final : public TrialRunner {
 public:
  using Curve = std::function<double(const Values&, int step)>;

  FakeRunner(Kept& kept, int steps, Curve curve) : kept_(kept), steps_(steps), curve_(std::move(curve)) {
    for (const auto& [number, usage] : kept_.usage) left_.insert(number);
  }

  void start(int number, const Values& values) override {
    REQUIRE_FALSE(is_active(number));
    REQUIRE_FALSE(left_.contains(number));
    REQUIRE_FALSE(released.contains(number));
    const auto saved = kept_.checkpoint.find(number);
    kept_.usage[number] = {std::to_string(kept_.runs++), 0, false};
    active_[number] = {values, saved == kept_.checkpoint.end() ? 0 : saved->second, false, {}};
    most_active = std::max(most_active, static_cast<int>(active_.size()));
  }
  void stop(int number) override { active_.at(number).stopping = true; }
  void set_share(int number, const RunShare& share) override { active_.at(number).share = share; }
  bool is_active(int number) const override { return active_.contains(number); }
  void discard(int number) override {
    REQUIRE_FALSE(is_active(number));
    kept_.checkpoint.erase(number);
  }
  void release(int number) override {
    REQUIRE_FALSE(is_active(number));
    released.insert(number);
  }

  std::vector<TrialEvent> poll() override {
    std::vector<TrialEvent> events;
    for (const int number : std::exchange(ended_, {}))
      if (!is_active(number)) kept_.usage.erase(number);
    for (const int number : std::exchange(left_, {})) {
      kept_.usage[number].is_last = true;
      events.push_back({number, kept_.usage[number]});
      ended_.insert(number);
    }
    for (auto it = active_.begin(); it != active_.end();) {
      auto& [number, trial] = *it;
      kept_.usage[number].device_seconds += seconds_per_step;
      kept_.device_seconds += seconds_per_step;
      // As with TrialResults, the results that an earlier search has seen are delivered again.
      if (replayed_.insert(number).second)
        for (const Result& result : kept_.results[number]) events.push_back({number, result});
      std::optional<TrialEnd> end;
      if (trial.stopping) {
        kept_.checkpoint[number] = trial.step;
        end = TrialEnd{TrialEnd::How::kStopped, ""};
      } else if (const auto given = ends.find(number); given != ends.end()) {
        end = given->second;
        if (end->how == TrialEnd::How::kKilled) kept_.checkpoint[number] = trial.step;
        if (!repeats.contains(number)) ends.erase(given);
      } else if (const auto failure = failures.find(number); failure != failures.end()) {
        end = TrialEnd{TrialEnd::How::kFailed, failure->second};
      } else {
        ++trial.step;
        ++kept_.steps_trained[number];
        const double value = curve_(trial.values, trial.step);
        if (reports) {
          const auto step = numbers ? std::optional<std::int64_t>(trial.step) : std::nullopt;
          kept_.results[number].push_back({value, step, {}});
          events.push_back({number, kept_.results[number].back()});
        }
        if (trial.step == steps_) end = TrialEnd{TrialEnd::How::kDone, ""};
      }
      if (end && end->how == TrialEnd::How::kStopped && slow_to_leave-- > 0) end.reset();
      kept_.usage[number].is_last = end.has_value();
      events.push_back({number, kept_.usage[number]});
      if (end) events.push_back({number, *end});
      if (end) ended_.insert(number);
      it = end ? active_.erase(it) : std::next(it);
    }
    return events;
  }

  const RunShare& share(int number) const { return active_.at(number).share; }

  // How trials end at their next step; each entry applies once unless the trial is in `repeats`.
  std::map<int, TrialEnd> ends;
  std::set<int> repeats;
  std::set<int> released;
  std::map<int, std::string> failures;
  bool reports = true, numbers = true;
  double seconds_per_step = 0;  // device-seconds of a trial per step
  int most_active = 0;
  int slow_to_leave = 0;  // number of polls before stopped trials end

 private:
  struct Trial {
    Values values;
    int step = 0;
    bool stopping = false;
    RunShare share = {};
  };
  Kept& kept_;
  const int steps_;
  const Curve curve_;
  std::map<int, Trial> active_;
  std::set<int> replayed_;
  std::set<int> left_;   // left by an earlier search; their usage has not been delivered
  std::set<int> ended_;  // their last usage has been delivered
};

inline double quality(const Values& values, int step) {
  return 1 - std::abs(std::log10(values.at("lr").get<double>()) + 3) / 10 - 0.5 / step;
}

// A study in a file, and everything that a search needs.
struct Scene {
  explicit Scene(const std::string& pruner_name = "asha", int parallel = 4, int trials = 24)
      : journal(directory.path() / "journal.log"), pruner(make_pruner(pruner_name)) {
    plan = {.study = "s",
            .metric = "accuracy",
            .space = {{{"lr", FloatRange{1e-5, 1e-1, true, {}}, {}}}, {{"n", 7}}},
            .trials = trials,
            .parallel = parallel,
            .deadline = {}};
    journal.create_study("s", Direction::kMaximize, "accuracy");
  }

  Search make_search(FakeRunner& runner) {
    return {plan, journal, *sampler, *pruner, runner, [this](const SearchEvent& event) { events.push_back(event); }};
  }
  // Searches until the end, or for `rounds` rounds. Returns whether the search has finished.
  bool search(FakeRunner& runner, int rounds = 100'000) {
    Search search = make_search(runner);
    while (rounds-- > 0 && search.advance(Time())) {
    }
    return search.finished();
  }
  const Study& study() const { return *journal.find("s"); }
  std::int64_t count(TrialState state) const { return std::ranges::count(study().trials, state, &Trial::state); }

  ::testing::TemporaryDirectory directory;
  Journal journal;
  std::unique_ptr<Sampler> sampler = make_sampler("random", 1);
  std::unique_ptr<Pruner> pruner;
  SearchPlan plan;
  std::vector<SearchEvent> events;  // events of all searches
  Kept kept;
};

}  // namespace adaptdl::sched::tune::testing
