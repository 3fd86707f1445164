// Reads and writes studies that Optuna also uses:
//   journal_program dump FILE...             prints the studies of each file as journal_peer.py does, one line per file
//   journal_program write FILE               writes a study with an example of everything
//   journal_program work FILE STUDY COUNT    runs COUNT trials alongside other processes, and prints their numbers
//   journal_program enqueue FILE STUDY       adds a waiting trial
//   journal_program open FILE                prints the shortest of several times to open the file, in ms
//   journal_program grow FILE TRIALS STEPS   writes a study of that size
//   journal_program importance FILE          prints the importances of the parameters of each study, by name
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "tune/journal/journal.h"
#include "tune/journal/journal_distribution.h"
#include "tune/journal/journal_time.h"
#include "tune/sampler/importance.h"
#include "tune/study/python_json.h"

namespace {

using namespace adaptdl::sched::tune;
using nlohmann::json;

const Distribution kRate = FloatRange{1e-5, 1, true, {}};
const Distribution kMomentum = FloatRange{0, 1, false, 0.3};
const Distribution kLayers = IntRange{1, 10, false, 2};
const Distribution kOptimizer = Choice{{"sgd", "grüß \"\\\n", true, nullptr, 2, 0.5}};

json time_of(const std::optional<Time>& time) { return time ? json(to_journal_time(*time)) : json(nullptr); }

json of(const Trial& trial) {
  json distributions = json::object(), intermediate = json::object();
  for (const auto& [name, distribution] : trial.distributions)
    distributions[name] = PythonJsonReader(to_text(distribution)).value();
  for (const auto& [step, value] : trial.intermediate) intermediate[std::to_string(step)] = value;
  return {{"id", trial.id},
          {"number", trial.number},
          {"state", static_cast<int>(trial.state)},
          {"distributions", distributions},
          {"parameters", trial.parameters},
          {"values", trial.values},
          {"intermediate", intermediate},
          {"user", trial.user_attributes},
          {"system", trial.system_attributes},
          {"started", time_of(trial.started)},
          {"ended", time_of(trial.ended)}};
}

json of(const Study& study) {
  json directions = json::array(), trials = json::array();
  for (const Direction direction : study.directions) directions.push_back(static_cast<int>(direction));
  for (const Trial& trial : study.trials) trials.push_back(of(trial));
  return {{"id", study.id},
          {"name", study.name},
          {"directions", directions},
          {"user", study.user_attributes},
          {"system", study.system_attributes},
          {"trials", trials}};
}

void dump(const std::string& file) {
  const Journal journal(file, {.create = false});
  json all = json::array();
  for (const Study* study : journal.studies()) all.push_back(of(*study));
  std::puts(to_python_json(all).c_str());
}

void write(const std::string& file) {
  Journal journal(file);
  journal.create_study("other", Direction::kMinimize, "loss");
  const int study = journal.create_study("digits, grüß", Direction::kMaximize, "accuracy");
  journal.set_study_attribute(study, "adaptdl",
                              {{"nested", {1, -2.5, nullptr, "\u00fc\u2028"}}, {"nan", std::nan("")}});
  journal.create_trial(study, TrialState::kWaiting, {{"fixed_params", {{"rate", 0.5}}}});
  for (int i = 0; i < 4; ++i) {
    const int trial = i == 1 ? *journal.claim_waiting(study) : journal.create_trial(study, TrialState::kRunning);
    journal.begin();
    journal.set_parameter(trial, "rate", kRate, 1e-5 * std::pow(10, i));
    journal.set_parameter(trial, "momentum", kMomentum, 0.3 * i);
    journal.set_parameter(trial, "layers", kLayers, 1 + 2 * i);
    journal.set_parameter(trial, "optimizer", kOptimizer,
                          std::get<Choice>(kOptimizer).values[static_cast<std::size_t>(i)]);
    journal.report(trial, 1, 0.1 + i);
    journal.report(trial, 2, i == 2 ? std::nan("") : std::numeric_limits<double>::infinity());
    journal.commit();
    journal.set_trial_attribute(trial, "gpu_seconds", 12.5 * i);
    if (i == 0) journal.finish(trial, TrialState::kComplete, 0.1 + 0.2);
    if (i == 1) journal.finish(trial, TrialState::kPruned, -std::numeric_limits<double>::infinity());
    if (i == 2) journal.finish(trial, TrialState::kFailed, {});
  }
}

void work(const std::string& file, const std::string& name, int count) {
  Journal journal(file, {.create = false});
  for (int i = 0; i < count; ++i) {
    journal.refresh();
    const int study = journal.find(name)->id;
    const auto claimed = journal.claim_waiting(study);
    const int trial = claimed ? *claimed : journal.create_trial(study, TrialState::kRunning);
    journal.set_parameter(trial, "rate", kRate, 0.125);
    for (int step = 0; step < 3; ++step) journal.report(trial, step, step);
    journal.set_trial_attribute(trial, "worker", "ours");
    if (!journal.finish(trial, TrialState::kComplete, i)) throw adaptdl::Error("finished by another process");
    std::printf("%d\n", journal.trial(trial)->number);
  }
}

void enqueue(const std::string& file, const std::string& name) {
  Journal journal(file, {.create = false});
  journal.create_trial(journal.find(name)->id, TrialState::kWaiting, {{"fixed_params", {{"rate", 0.5}}}});
}

void grow(const std::string& file, int trials, int steps) {
  Journal journal(file);
  const int study = journal.create_study("large", Direction::kMinimize, "loss");
  for (int i = 0; i < trials; ++i) {
    const int trial = journal.create_trial(study, TrialState::kRunning);
    journal.begin();
    journal.set_parameter(trial, "rate", kRate, 1e-5 * (1 + i));
    journal.set_parameter(trial, "momentum", kMomentum, 0.3);
    journal.set_parameter(trial, "layers", kLayers, 3);
    journal.set_parameter(trial, "optimizer", kOptimizer, "sgd");
    for (int step = 0; step < steps; ++step) journal.report(trial, step, 1.0 / (1 + i + step));
    journal.set_trial_attribute(trial, "gpu_seconds", 12.5 * i);
    journal.finish(trial, TrialState::kComplete, 1.0 / (1 + i));
  }
}

void print_importances(const std::string& file) {
  const Journal journal(file, {.create = false});
  json all = json::object();
  for (const Study* study : journal.studies())
    for (const auto& [parameter, fraction] : parameter_importances(*study).parameters)
      all[study->name][parameter] = fraction;
  std::puts(to_python_json(all).c_str());
}

double open_ms(const std::string& file) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Journal journal(file, {.create = false});
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    const std::string& what = arguments.at(0);
    if (what == "dump") std::for_each(arguments.begin() + 1, arguments.end(), dump);
    if (what == "write") write(arguments.at(1));
    if (what == "work") work(arguments.at(1), arguments.at(2), std::stoi(arguments.at(3)));
    if (what == "enqueue") enqueue(arguments.at(1), arguments.at(2));
    if (what == "importance") print_importances(arguments.at(1));
    if (what == "open") std::printf("%.2f\n", open_ms(arguments.at(1)));
    if (what == "grow") grow(arguments.at(1), std::stoi(arguments.at(2)), std::stoi(arguments.at(3)));
  } catch (const adaptdl::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
