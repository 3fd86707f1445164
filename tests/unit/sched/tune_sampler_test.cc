#include "tune/sampler/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "adaptdl/error.h"
#include "tune/sampler/combinations.h"
#include "tune/sampler/parzen_estimator.h"
#include "tune/sampler/qmc.h"
#include "tune/sampler/trial_split.h"
#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune::tune_sampler_test {
namespace {

using nlohmann::json;

const Space kMixed{{{"x", FloatRange{-5, 10}},
                    {"rate", FloatRange{1e-5, 0.1, true}},
                    {"layers", IntRange{1, 8}},
                    {"width", IntRange{1, 512, true}},
                    {"dropout", FloatRange{0, 1.1, false, 0.25}},
                    {"optimizer", Choice{{"sgd", "adam", nullptr}}},
                    {"batch", IntRange{0, 100000, false, 10}}}};

const Space kConditional{{{"optimizer", Choice{{"sgd", "adam"}}},
                          {"momentum", FloatRange{0, 0.9, false, 0.1}, {{"optimizer", {"sgd"}}}},
                          {"nesterov", Choice{{true, false}}, {{"optimizer", {"sgd"}}, {"momentum", {0.5}}}},
                          {"beta", IntRange{1, 3}, {{"optimizer", {"adam"}}}}}};

Trial trial_of(const Space& space, int number, Values values, double result) {
  Trial trial{number, number, TrialState::kComplete, {}, std::move(values), {result}, {}, {}, {}, {}, {}};
  for (const auto& each : space.parameters)
    if (trial.parameters.contains(each.name)) trial.distributions[each.name] = each.distribution;
  return trial;
}

// Returns a study of `trials` trials, which are sampled one after the other.
Study search(Sampler& sampler, const Space& space, int trials, double (*objective)(const Values&)) {
  Study study{0, "", {Direction::kMinimize}, {}, {}, {}};
  for (int number = 0; number < trials; ++number) {
    const auto values = sampler.sample(space, study, number, {});
    if (!values) break;
    study.trials.push_back(trial_of(space, number, *values, objective(*values)));
  }
  return study;
}

double mixed_objective(const Values& values) {
  return std::abs(values.at("x").get<double>() - 3) + std::abs(std::log10(values.at("rate").get<double>()) + 3) +
         values.at("layers").get<double>() + (values.at("optimizer") == "adam" ? 0 : 2);
}

double zero(const Values&) { return 0; }

double mean_of_last(const Study& study, std::size_t count) {
  double sum = 0;
  for (std::size_t i = study.trials.size() - count; i < study.trials.size(); ++i) sum += study.trials[i].values.front();
  return sum / static_cast<double>(count);
}

TEST_CASE("portable math functions agree with the C library") {
  for (double x = -40; x < 40; x += 0.37) {
    CHECK(portable::exp(x) == doctest::Approx(std::exp(x)).epsilon(1e-15));
    CHECK(portable::log(std::exp(x)) == doctest::Approx(std::log(std::exp(x))).epsilon(1e-15));
  }
  for (double x = -37; x < 8; x += 0.0371) {
    const double probability = 0.5 * std::erfc(-x / std::sqrt(2));
    CHECK(std::abs(portable::normal_cdf(x) / probability - 1) < 1e-12);
    if (x < 5) CHECK(portable::normal_quantile(portable::normal_cdf(x)) == doctest::Approx(x).epsilon(1e-9));
  }
  CHECK(portable::normal_mass(9, 10) == doctest::Approx(portable::normal_mass(-10, -9)).epsilon(1e-15));
}

// Returns a point of kMixed.
Point mixed_point(int index) {
  static constexpr double kSteps[] = {0.618, 0.414, 0.732, 0.236, 0.646, 0.317, 0.872};
  double u[7];
  for (int i = 0; i < 7; ++i) u[i] = std::fmod(index * kSteps[i], 1.0);
  return {-5 + 15 * u[0],
          portable::log(1e-5 + 0.0999 * u[1] * u[1]),
          1 + std::floor(8 * u[2]),
          1 + std::floor(511 * u[3] * u[3]),
          0.25 * std::floor(5 * u[4]),
          std::floor(3 * u[5]),
          10 * std::floor(10000 * u[6])};
}

double log_density(std::size_t first, std::size_t last, int observed, int point) {
  std::vector<Distribution> distributions;
  for (std::size_t i = first; i < last; ++i) distributions.push_back(kMixed.parameters[i].distribution);
  const auto part = [&](int index) {
    const Point whole = mixed_point(index);
    return Point(whole.begin() + static_cast<int>(first), whole.begin() + static_cast<int>(last));
  };
  std::vector<Point> points;
  for (int i = 1; i <= observed; ++i) points.push_back(part(i));
  return ParzenEstimator(distributions, points).log_density(part(point));
}

// The values are those of _ParzenEstimator in optuna 5.0.0 for the same observations, with a stable numpy.argsort:
// otherwise the deviations of equal observations would depend on the processor.
TEST_CASE("the densities of a Parzen estimator match Optuna's") {
  const auto close = [](double number) { return doctest::Approx(number).epsilon(1e-10); };
  CHECK(log_density(0, 7, 0, 101) == close(-26.91402745863));
  CHECK(log_density(0, 7, 1, 101) == close(-26.58146088392));
  CHECK(log_density(0, 7, 2, 101) == close(-27.92559731853));
  CHECK(log_density(0, 7, 30, 101) == close(-30.26685124233));
  CHECK(log_density(0, 7, 30, 102) == close(-25.41030899504));
  CHECK(log_density(0, 7, 30, 103) == close(-28.00337151851));
  static constexpr double kAlone[] = {-2.918524231368, -0.9407729891059, -1.940073599595, -6.685965637085,
                                      -1.469181455576, -1.137918754083,  -9.05279021224};
  for (std::size_t i = 0; i < 7; ++i) CHECK(log_density(i, i + 1, 30, 101) == close(kAlone[i]));
}

TEST_CASE("points drawn from a Parzen estimator are distributed by its density") {
  const std::vector<Distribution> distributions{IntRange{1, 8}, Choice{{"a", "b", "c"}}};
  const ParzenEstimator estimator(distributions, {{2, 0}, {3, 0}, {7, 2}});
  RandomBits random({1});
  std::map<Point, int> counts;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) ++counts[estimator.draw(random)];
  double sum = 0;
  for (int number = 1; number <= 8; ++number) {
    for (int choice = 0; choice < 3; ++choice) {
      const Point point{static_cast<double>(number), static_cast<double>(choice)};
      const double expected = std::exp(estimator.log_density(point));
      sum += expected;
      CHECK(std::abs(counts[point] - kDraws * expected) < 5 * std::sqrt(kDraws * expected));
    }
  }
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("trials are ranked by result, and pruned ones by their last step") {
  Study study{0, "", {Direction::kMaximize}, {}, {}, {}};
  for (int number = 0; number < 40; ++number) study.trials.push_back(trial_of({}, number, {}, number % 30));
  const auto prune = [&](std::size_t number, std::map<std::int64_t, double> intermediate) {
    study.trials[number].state = TrialState::kPruned;
    study.trials[number].intermediate = std::move(intermediate);
  };
  prune(0, {});
  prune(1, {{3, 5.0}});
  prune(2, {{3, 6.0}});
  prune(3, {{3, std::nan("")}});
  prune(4, {{1, 9.0}, {4, 0.0}});
  study.trials[5].state = TrialState::kFailed;
  study.trials[6].state = TrialState::kWaiting;
  study.trials[7].state = TrialState::kRunning;
  study.trials[8].values = {std::nan("")};
  const TrialSplit split(study, 39);
  std::vector<int> good, worst;
  for (const Trial* trial : split.good) good.push_back(trial->number);
  for (const Trial* trial : split.ended) worst.push_back(trial->number);
  CHECK(good == std::vector{26, 27, 28, 29});  // of 35 that have ended
  CHECK(std::vector(worst.end() - 5, worst.end()) == std::vector{4, 2, 1, 3, 0});
  CHECK(split.rest.size() == 35 - 4 + 1);
}

TEST_CASE("samplers stay within the space and are reproducible from the seed") {
  for (const std::string name : {"tpe", "random", "qmc"}) {
    CAPTURE(name);
    const Study study = search(*make_sampler(name, 5), kMixed, 40, mixed_objective);
    const Study again = search(*make_sampler(name, 5), kMixed, 40, mixed_objective);
    const Study other = search(*make_sampler(name, 6), kMixed, 40, mixed_objective);
    for (std::size_t i = 0; i < 40; ++i) {
      const Values& values = study.trials[i].parameters;
      CHECK(values.size() == kMixed.parameters.size());
      for (const auto& each : kMixed.parameters) CHECK(contains(each.distribution, values.at(each.name)));
      CHECK(values == again.trials[i].parameters);
      CHECK(values != other.trials[i].parameters);
    }
  }
}

TEST_CASE("only applicable parameters are sampled, and given values are kept") {
  for (const std::string name : {"tpe", "random", "qmc", "grid"}) {
    CAPTURE(name);
    const auto sampler = make_sampler(name, 1);
    const Study study = search(*sampler, kConditional, 14, [](const Values& values) {
      return values.contains("momentum") ? values.at("momentum").get<double>() : 2.0;
    });
    CHECK(study.trials.size() == 14);
    for (const Trial& trial : study.trials)
      for (const auto& each : kConditional.parameters)
        CHECK(trial.parameters.contains(each.name) == applies(each, trial.parameters));
    const Values given{{"optimizer", "sgd"}, {"momentum", 0.5}};
    const auto values = sampler->sample(kConditional, study, 14, given);
    REQUIRE(values);
    CHECK(values->at("momentum") == 0.5);
    CHECK(values->contains("nesterov"));
    CHECK(sampler->sample({{}, {{"epochs", 3}}}, {}, 0, {}) == Values{});
  }
}

// Users notice if these values change: a study that is continued or repeated gets different trials.
TEST_CASE("samples for a given seed match the recorded values") {
  const auto last = [](const std::string& name) {
    return json(search(*make_sampler(name, 1), kMixed, 30, mixed_objective).trials.back().parameters).dump();
  };
  CHECK(
      last("random") ==
      R"({"batch":44300,"dropout":1.0,"layers":6,"optimizer":"sgd","rate":0.00025127742826241696,"width":235,"x":8.77926705684861})");
  CHECK(
      last("qmc") ==
      R"({"batch":46390,"dropout":0.0,"layers":5,"optimizer":null,"rate":0.07622575804634842,"width":1,"x":-2.1200736872379355})");
  CHECK(
      last("tpe") ==
      R"({"batch":7590,"dropout":0.5,"layers":2,"optimizer":null,"rate":0.0152941545956285,"width":3,"x":2.287615421232532})");
}

TEST_CASE("TPE finds better trials than random sampling") {
  const Study tpe = search(*make_sampler("tpe", 1), kMixed, 80, mixed_objective);
  const Study random = search(*make_sampler("random", 1), kMixed, 80, mixed_objective);
  CHECK(mean_of_last(tpe, 20) < mean_of_last(random, 20) - 3);
}

TEST_CASE("TPE maximizes if the study does") {
  const Space space{{{"x", FloatRange{0, 1}}}};
  Study study{0, "", {Direction::kMaximize}, {}, {}, {}};
  const auto sampler = make_sampler("tpe", 1);
  for (int number = 0; number < 40; ++number) {
    const Values values = *sampler->sample(space, study, number, {});
    study.trials.push_back(trial_of(space, number, values, values.at("x").get<double>()));
  }
  CHECK(mean_of_last(study, 20) > 0.8);
}

TEST_CASE("TPE avoids the values of running trials") {
  const Space space{{{"x", FloatRange{0, 1}}}};
  // Returns the mean distance of trials sampled in this state to their nearest neighbors.
  const auto distance = [&](TrialState state) {
    const auto sampler = make_sampler("tpe", 1);
    Study study =
        search(*sampler, space, 30, [](const Values& values) { return std::abs(values.at("x").get<double>() - 0.5); });
    std::vector<double> sampled;
    for (int number = 30; number < 60; ++number) {
      const Values values = *sampler->sample(space, study, number, {});
      sampled.push_back(values.at("x").get<double>());
      study.trials.push_back(trial_of(space, number, values, 0));
      study.trials.back().state = state;
    }
    double sum = 0;
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      double nearest = 1;
      for (std::size_t j = 0; j < sampled.size(); ++j)
        if (i != j) nearest = std::min(nearest, std::abs(sampled[i] - sampled[j]));
      sum += nearest;
    }
    return sum / static_cast<double>(sampled.size());
  };
  CAPTURE(distance(TrialState::kRunning));
  CAPTURE(distance(TrialState::kFailed));
  CHECK(distance(TrialState::kRunning) > 1.5 * distance(TrialState::kFailed));
}

TEST_CASE("TPE works with a study whose space has changed") {
  Study study = search(*make_sampler("tpe", 1), kMixed, 30, mixed_objective);
  Space changed = kMixed;
  changed.parameters[0].distribution = FloatRange{0, 1};
  changed.parameters[5].distribution = Choice{{"adam"}};
  changed.parameters.push_back({"new", IntRange{0, 9}});
  const Values values = *make_sampler("tpe", 1)->sample(changed, study, 30, {});
  CHECK(values.size() == 8);
  for (const auto& each : changed.parameters) CHECK(contains(each.distribution, values.at(each.name)));
}

TEST_CASE("the coordinates of Sobol' points match published values") {
  CHECK(sobol(0, 1) == 0.5);  // these values are those of scipy 1.17
  CHECK(sobol(1, 3) == 0.75);
  CHECK(sobol(2, 5) == 0.125);
  CHECK(sobol(7, 100) == 0.4765625);
  CHECK(sobol(35, 77) == 0.7734375);
  CHECK(sobol(63, 999) == 0.6337890625);
}

TEST_CASE("scrambled Sobol' points fill each dimension, and the first two jointly, evenly") {
  for (const std::uint64_t seed : {1, 2}) {
    for (std::size_t dimension = 0; dimension < QmcSampler::kDimensions; ++dimension) {
      std::set<int> cells;
      for (std::uint32_t point = 0; point < 256; ++point)
        cells.insert(static_cast<int>(256 * scrambled_sobol(dimension, point, seed)));
      CHECK(cells.size() == 256);
    }
    std::set<std::pair<int, int>> cells;
    for (std::uint32_t point = 0; point < 256; ++point)
      cells.emplace(static_cast<int>(16 * scrambled_sobol(0, point, seed)),
                    static_cast<int>(16 * scrambled_sobol(1, point, seed)));
    CHECK(cells.size() == 256);
  }
}

TEST_CASE("QMC can sample more parameters than it has dimensions") {
  Space space;
  for (int i = 0; i < 70; ++i) space.parameters.push_back({"p" + std::to_string(i), FloatRange{0, 1}});
  CHECK(make_sampler("qmc", 1)->sample(space, {}, 3, {})->size() == 70);
}

TEST_CASE("combinations are counted and listed without parameters that do not apply") {
  const Combinations all(kConditional, {});
  CHECK(all.size() == 9 + 2 + 3);  // sgd: one for each momentum, but two for 0.5; adam: one for each beta
  std::set<Values> different;
  for (std::uint64_t i = 0; i < all.size(); ++i) different.insert(all.at(i));
  CHECK(different.size() == all.size());
  CHECK(Combinations(kConditional, {{"optimizer", "sgd"}}).size() == 11);
}

TEST_CASE("the grid sampler tries each combination once and is then exhausted") {
  const auto grid = make_sampler("grid", 3);
  Study study = search(*grid, kConditional, 100, zero);
  CHECK(study.trials.size() == 14);
  CHECK_FALSE(grid->sample(kConditional, study, 14, {}));
  CHECK(grid->sample(kConditional, study, 14, {{"optimizer", "adam"}}));
  study.trials[4].state = TrialState::kFailed;
  CHECK_FALSE(grid->sample(kConditional, study, 14, {}));
  study.trials[4].state = TrialState::kWaiting;
  CHECK(grid->sample(kConditional, study, 14, {}) == study.trials[4].parameters);
  CHECK(grid->sample(kConditional, study, 4, {}) == study.trials[4].parameters);
}

TEST_CASE("a huge grid is sampled without being listed, and an infinite one is rejected") {
  Space space;
  for (int i = 0; i < 6; ++i) space.parameters.push_back({"p" + std::to_string(i), IntRange{1, 1000}});
  for (int i = 0; i < 30; ++i)
    space.parameters.push_back({"q" + std::to_string(i), Choice{{1}}, {{"p" + std::to_string(i % 6), {i}}}});
  const Study study = search(*make_sampler("grid", 1), space, 30, zero);
  std::set<Values> different;
  for (const Trial& trial : study.trials) different.insert(trial.parameters);
  CHECK(different.size() == 30);
  space.parameters[0].distribution = FloatRange{0, 1};
  CHECK_THROWS_AS(make_sampler("grid", 1)->sample(space, {}, 0, {}), UsageError);
  CHECK_THROWS_AS(make_sampler("cmaes", 1), UsageError);
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_sampler_test
