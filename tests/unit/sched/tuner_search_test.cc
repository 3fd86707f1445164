#include "tuner/search.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace adaptdl::sched::tune::tuner_search_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Trials that train in steps of poll(), in a process that may be killed: what is kept between searches is in `Kept`.
struct Kept {
  std::map<int, int> checkpoint;                 // the step of each trial that has one
  std::map<int, std::map<int, double>> results;  // of each trial by step
  std::map<int, int> steps_trained;              // in all
};

class FakeRunner final : public TrialRunner {
 public:
  using Curve = std::function<double(const Values&, int step)>;

  FakeRunner(Kept& kept, int steps, Curve curve) : kept_(kept), steps_(steps), curve_(std::move(curve)) {}

  void start(int number, const Values& values) override {
    REQUIRE_FALSE(is_active(number));
    const auto saved = kept_.checkpoint.find(number);
    active_[number] = {values, saved == kept_.checkpoint.end() ? 0 : saved->second, false};
    most_active = std::max(most_active, static_cast<int>(active_.size()));
  }
  void stop(int number) override { active_.at(number).stopping = true; }
  bool is_active(int number) const override { return active_.contains(number); }
  void discard(int number) override {
    REQUIRE_FALSE(is_active(number));
    kept_.checkpoint.erase(number);
  }

  std::vector<TrialEvent> poll() override {
    std::vector<TrialEvent> events;
    for (auto it = active_.begin(); it != active_.end();) {
      auto& [number, trial] = *it;
      // Like TrialResults: what an earlier search has seen comes again.
      if (!trial.replayed)
        for (const auto& [step, value] : kept_.results[number]) events.push_back({number, Result{value, step, {}}});
      trial.replayed = true;
      std::optional<TrialEnd> end;
      if (trial.stopping) {
        kept_.checkpoint[number] = trial.step;
        end = TrialEnd{TrialEnd::How::kStopped, ""};
      } else if (const auto failure = failures.find(number); failure != failures.end()) {
        end = TrialEnd{TrialEnd::How::kFailed, failure->second};
      } else {
        ++trial.step;
        ++kept_.steps_trained[number];
        const double value = curve_(trial.values, trial.step);
        if (reports) {
          kept_.results[number][trial.step] = value;
          events.push_back({number, Result{value, trial.step, {}}});
        }
        if (trial.step == steps_) end = TrialEnd{TrialEnd::How::kDone, ""};
      }
      if (end) events.push_back({number, *end});
      it = end ? active_.erase(it) : std::next(it);
    }
    return events;
  }

  std::map<int, std::string> failures;
  bool reports = true;
  int most_active = 0;

 private:
  struct Trial {
    Values values;
    int step = 0;
    bool stopping = false, replayed = false;
  };
  Kept& kept_;
  const int steps_;
  const Curve curve_;
  std::map<int, Trial> active_;
};

double quality(const Values& values, int step) {
  return 1 - std::abs(std::log10(values.at("lr").get<double>()) + 3) / 10 - 0.5 / step;
}

// A study in a file, and everything to search it with.
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
    return {plan, journal, *sampler, *pruner, runner, [this](std::string_view text) { notices.emplace_back(text); }};
  }
  // Searches until the end, or for so many rounds. Returns whether it was finished.
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
  std::vector<std::string> notices;
  Kept kept;
};

TEST_CASE("a search runs as many trials as asked, few of them to the end, the best among these") {
  Scene scene;
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  CHECK(scene.study().trials.size() == 24);
  CHECK(scene.count(TrialState::kComplete) >= 1);
  CHECK(scene.count(TrialState::kComplete) <= 3);
  CHECK(scene.count(TrialState::kRunning) == 0);
  const Trial* const best = best_trial(scene.study());
  REQUIRE(best != nullptr);
  for (const Trial& trial : scene.study().trials) CHECK(quality(trial.parameters, 64) <= best->values.front());
  // One that leaves and the one that takes its place may overlap.
  CHECK(runner.most_active <= 8);
}

TEST_CASE("only trials that completed keep their checkpoints") {
  Scene scene;
  FakeRunner runner(scene.kept, 64, quality);
  CHECK(scene.search(runner));
  CHECK(scene.kept.checkpoint.size() <= static_cast<std::size_t>(scene.count(TrialState::kComplete)));
}

TEST_CASE("without a pruner every trial is trained to its end") {
  Scene scene("none", 3, 7);
  FakeRunner runner(scene.kept, 5, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 7);
}

TEST_CASE("a search that is killed at any moment continues: no trial is lost, repeated or trained twice") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Scene scene;
    for (;;) {
      // The runs of the killed search save their checkpoints.
      FakeRunner runner(scene.kept, 64, quality);
      const int rounds = 1 + static_cast<int>(random() % 40);
      const bool finished = scene.search(runner, rounds);
      if (finished) break;
      for (const Trial& trial : scene.study().trials)
        if (runner.is_active(trial.number)) runner.stop(trial.number);
      runner.poll();
    }
    CHECK(scene.study().trials.size() == 24);
    CHECK(scene.count(TrialState::kComplete) >= 1);
    CHECK(scene.count(TrialState::kFailed) == 0);
    for (const auto& [number, steps] : scene.kept.steps_trained) CHECK(steps <= 64);
    for (const Trial& trial : scene.study().trials) CHECK(trial.parameters.contains("lr"));
  }
}

TEST_CASE("stop() lets all trials save, and the next search continues them") {
  Scene scene("none", 4, 6);
  {
    FakeRunner runner(scene.kept, 10, quality);
    Search search = scene.make_search(runner);
    for (int i = 0; i < 5; ++i) CHECK(search.advance(Time()));
    search.stop();
    while (search.advance(Time())) {
    }
    CHECK_FALSE(search.finished());
  }
  CHECK(scene.count(TrialState::kRunning) == 4);
  FakeRunner runner(scene.kept, 10, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 6);
  for (const auto& [number, steps] : scene.kept.steps_trained) CHECK(steps == 10);
}

TEST_CASE("after its deadline a search stops with checkpoints") {
  Scene scene("none");
  scene.plan.deadline = Time() + std::chrono::seconds(1);
  FakeRunner runner(scene.kept, 100, quality);
  Search search = scene.make_search(runner);
  CHECK(search.advance(Time()));
  CHECK(search.advance(Time() + std::chrono::seconds(1)));
  CHECK_FALSE(search.advance(Time() + std::chrono::seconds(1)));
  CHECK_FALSE(search.finished());
  CHECK(scene.kept.checkpoint.size() == 4);
}

TEST_CASE("a trial that fails says why, and the search continues") {
  Scene scene("none", 2, 8);
  FakeRunner runner(scene.kept, 5, quality);
  runner.failures[3] = "exit code 3";
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 7);
  CHECK(scene.study().trials[3].state == TrialState::kFailed);
  CHECK(scene.study().trials[3].user_attributes.at(kReason) == "exit code 3");
}

TEST_CASE("a search gives up when its first trials all fail") {
  Scene scene;
  FakeRunner runner(scene.kept, 5, quality);
  for (int i = 0; i < 24; ++i) runner.failures[i] = "no such file";
  std::string what;
  try {
    scene.search(runner);
  } catch (const Error& error) {
    what = error.what();
  }
  CHECK(what == "the first 5 trials failed without a result; the last one: no such file");
  CHECK(scene.study().trials.size() < 24);
}

TEST_CASE("a metric that is never reported, or is not a number at the end, fails the trial") {
  Scene scene("none", 1, 1);
  FakeRunner silent(scene.kept, 3, quality);
  silent.reports = false;
  CHECK(scene.search(silent));
  CHECK(scene.study().trials[0].user_attributes.at(kReason) == "metric 'accuracy' was never reported");
  Scene other("asha", 1, 3);
  FakeRunner diverging(other.kept, 3, [](const Values&, int) { return kNaN; });
  CHECK(other.search(diverging));
  CHECK(other.count(TrialState::kComplete) == 0);
  CHECK(best_trial(other.study()) == nullptr);
}

TEST_CASE("trials that wait in the storage are run with the parameters that they were given") {
  Scene scene("none", 1, 2);
  scene.journal.create_trial(scene.study().id, TrialState::kWaiting, {{"fixed_params", {{"lr", 0.01}, {"x", 1}}}});
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  CHECK(scene.study().trials.size() == 2);
  CHECK(scene.study().trials[0].parameters == Values{{"lr", 0.01}});
}

TEST_CASE("a grid ends the search when all combinations were tried") {
  Scene scene("none", 2, 100);
  scene.plan.space = {{{"lr", Choice{{0.1, 0.01}}, {}}, {"b", IntRange{1, 3}, {}}}, {}};
  scene.sampler = make_sampler("grid", 3);
  FakeRunner runner(scene.kept, 2, quality);
  CHECK(scene.search(runner));
  CHECK(scene.count(TrialState::kComplete) == 6);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tuner_search_test
