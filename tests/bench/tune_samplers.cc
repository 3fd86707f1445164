// Prints, for tune_samplers.py, the best values that the samplers of `adaptdl tune` find, and the time that they take.
//
//   bench_tune_samplers PROBLEM SAMPLER SEEDS   a JSON array with each seed's best values after 25, 50 and 100 trials
//   bench_tune_samplers time                    CPU milliseconds per trial in a study of 1,000, by sampler and problem
//
// tune_samplers.py describes the problems, except "wide": a space of 30 parameters, used only to measure the time.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tune/sampler/sampler.h"

using namespace adaptdl::sched::tune;
using nlohmann::json;

namespace {

constexpr int kTrials = 100;

struct Problem {
  Space space;
  double (*objective)(const Values&);
  int at_once = 1;  // trials that run at the same time
};

double number(const Values& values, const char* name) { return values.at(name).get<double>(); }

double branin(const Values& values) {
  constexpr double kPi = std::numbers::pi;
  const double x = number(values, "x"), y = number(values, "y");
  return std::pow(y - 5.1 / (4 * kPi * kPi) * x * x + 5 / kPi * x - 6, 2) + 10 * (1 - 1 / (8 * kPi)) * std::cos(x) + 10;
}

double hartmann6(const Values& values) {
  static constexpr double kAlpha[4] = {1.0, 1.2, 3.0, 3.2};
  static constexpr double kA[4][6] = {
      {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
  static constexpr double kP[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
                                      {2329, 4135, 8307, 3736, 1004, 9991},
                                      {2348, 1451, 3522, 2883, 3047, 6650},
                                      {4047, 8828, 8732, 5743, 1091, 381}};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double distance = 0;
    for (int j = 0; j < 6; ++j) {
      const double x = number(values, ("x" + std::to_string(j)).c_str());
      distance += kA[i][j] * std::pow(x - kP[i][j] * 1e-4, 2);
    }
    sum -= kAlpha[i] * std::exp(-distance);
  }
  return sum;
}

// Returns the noise of a table's cell: a number in [-1, 1), distributed uniformly by the finalizer of SplitMix64.
double noise(std::uint64_t cell) {
  cell += 0x9e3779b97f4a7c15;
  cell = (cell ^ (cell >> 30)) * 0xbf58476d1ce4e5b9;
  cell = (cell ^ (cell >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((cell ^ (cell >> 31)) >> 11) * 0x1p-52 - 1;
}

double table(const Values& values, double momentum) {
  const auto& names = values.at("optimizer");
  const int optimizer = names == "sgd" ? 0 : names == "adam" ? 1 : 2;
  const int rate = static_cast<int>((std::log10(number(values, "rate")) + 5) * 5);  // 20 columns
  const int layers = values.at("layers").get<int>(), width = values.at("width").get<int>();
  const int octave = static_cast<int>(std::log2(width) * 2);
  const int dropout = static_cast<int>(std::lround(number(values, "dropout") * 10));
  const bool norm = values.at("norm").get<bool>();
  const double best_rate[3] = {14, 9, 10}, offset[3] = {0.02, 0.0, 0.03};
  const double loss = 0.1 + offset[optimizer] + 0.004 * std::pow(rate - best_rate[optimizer], 2) +
                      0.01 * std::abs(layers - 5) + 0.006 * std::pow(octave - 15, 2) +
                      0.02 * std::pow(dropout - 0.5 * layers, 2) * 0.2 + (norm ? 0 : 0.01 * layers) + momentum;
  const int cell = ((((optimizer * 20 + rate) * 9 + layers) * 24 + octave) * 8 + dropout) * 2 + (norm ? 1 : 0);
  return loss + 0.02 * noise(static_cast<std::uint64_t>(cell));
}

double tabular(const Values& values) { return table(values, 0); }

double conditional(const Values& values) {
  if (values.contains("momentum")) return table(values, 0.1 * std::abs(number(values, "momentum") - 0.9));
  return table(values, 0.05 * std::abs(std::log10(number(values, "epsilon")) + 6));
}

Space table_space() {
  return {{{"optimizer", Choice{{"sgd", "adam", "rmsprop"}}},
           {"rate", FloatRange{1e-5, 0.09999, true}},
           {"layers", IntRange{1, 8}},
           {"width", IntRange{16, 2048, true}},
           {"dropout", FloatRange{0, 0.7, false, 0.1}},
           {"norm", Choice{{true, false}}}}};
}

Problem problem_of(const std::string& name) {
  if (name == "branin") return {{{{"x", FloatRange{-5, 10}}, {"y", FloatRange{0, 15}}}}, branin};
  if (name.starts_with("hartmann6")) {
    Problem problem{{}, hartmann6, name == "hartmann6-parallel" ? 8 : 1};
    for (int i = 0; i < 6; ++i) problem.space.parameters.push_back({"x" + std::to_string(i), FloatRange{0, 1}});
    return problem;
  }
  if (name == "wide") {
    Problem problem{{}, [](const Values& values) { return number(values, "a0") + number(values, "b0"); }};
    for (const std::string index : {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
      problem.space.parameters.push_back({"a" + index, FloatRange{0, 1}});
      problem.space.parameters.push_back({"b" + index, IntRange{1, 4096, true}});
      problem.space.parameters.push_back({"c" + index, Choice{{"a", "b", "c"}}});
    }
    return problem;
  }
  Problem problem{table_space(), tabular};
  if (name == "conditional") {
    problem.objective = conditional;
    problem.space.parameters.push_back({"momentum", FloatRange{0, 0.99}, {{"optimizer", {"sgd"}}}});
    problem.space.parameters.push_back({"epsilon", FloatRange{1e-9, 1e-3, true}, {{"optimizer", {"adam", "rmsprop"}}}});
  }
  return problem;
}

void start(Sampler& sampler, const Problem& problem, Study& study) {
  const int index = static_cast<int>(study.trials.size());
  Trial trial;
  trial.id = trial.number = index;
  trial.parameters = *sampler.sample(problem.space, study, index, {});
  for (const auto& each : problem.space.parameters)
    if (trial.parameters.contains(each.name)) trial.distributions[each.name] = each.distribution;
  study.trials.push_back(std::move(trial));
}

void finish(const Problem& problem, Trial& trial) {
  trial.values = {problem.objective(trial.parameters)};
  trial.state = TrialState::kComplete;
}

json best_values(const std::string& name, const std::string& sampler_name, std::uint64_t seed) {
  const Problem problem = problem_of(name);
  const auto sampler = make_sampler(sampler_name, seed);
  Study study;
  study.directions = {Direction::kMinimize};
  double best = INFINITY;
  json reached = json::array();
  while (study.trials.size() < kTrials) {
    const std::size_t first = study.trials.size();
    for (int i = 0; i < problem.at_once && study.trials.size() < kTrials; ++i) start(*sampler, problem, study);
    for (std::size_t i = first; i < study.trials.size(); ++i) {
      finish(problem, study.trials[i]);
      best = std::min(best, study.trials[i].values.front());
      if (i + 1 == 25 || i + 1 == 50 || i + 1 == kTrials) reached.push_back(best);
    }
  }
  return reached;
}

void print_times() {
  for (const char* sampler_name : {"tpe", "random", "qmc"}) {
    for (const char* name : {"branin", "hartmann6", "tabular", "conditional", "wide"}) {
      const Problem problem = problem_of(name);
      const auto random = make_sampler("random", 1), sampler = make_sampler(sampler_name, 1);
      Study study;
      study.directions = {Direction::kMinimize};
      while (study.trials.size() < 1000) {
        start(*random, problem, study);
        finish(problem, study.trials.back());
      }
      constexpr int kRepetitions = 20;
      const std::clock_t began = std::clock();
      for (int i = 0; i < kRepetitions; ++i) start(*sampler, problem, study);
      const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
      fmt::print("{:<8} {:<12} {:.2f} ms\n", sampler_name, name, 1e3 * seconds / kRepetitions);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string(argv[1]) == "time") {
      print_times();
      return 0;
    }
    if (argc != 4) throw std::runtime_error("expected PROBLEM SAMPLER SEEDS");
    json all = json::array();
    for (int seed = 0; seed < std::stoi(argv[3]); ++seed)
      all.push_back(best_values(argv[1], argv[2], static_cast<std::uint64_t>(seed)));
    fmt::print("{}\n", all.dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_tune_samplers: {}\n", error.what());
    return 1;
  }
}
