// A study and its trials, with the same fields as in Optuna's storage.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// The numbers are the same as in Optuna's storage.
enum class TrialState { kRunning = 0, kComplete = 1, kPruned = 2, kFailed = 3, kWaiting = 4 };
enum class Direction { kMinimize = 1, kMaximize = 2 };

// Returns whether a trial in this state has ended.
constexpr bool is_finished(TrialState state) { return state != TrialState::kRunning && state != TrialState::kWaiting; }

using Time = std::chrono::system_clock::time_point;

struct Trial {
  int id = 0;      // unique among all trials of the storage
  int number = 0;  // within the study, from 0
  TrialState state = TrialState::kRunning;
  std::map<std::string, Distribution> distributions;  // distributions of the parameters in `parameters`
  Values parameters;
  std::vector<double> values;                   // values of the objectives; only finished trials may have them
  std::map<std::int64_t, double> intermediate;  // by step; NaN where null was reported
  std::map<std::string, nlohmann::json> user_attributes, system_attributes;
  std::optional<Time> started, ended;
};

// User attributes in which `adaptdl tune` stores what Optuna's fields cannot express.
inline constexpr char kActivity[] = "adaptdl:state";  // kPaused for a paused trial; Optuna sees it as running
inline constexpr char kPaused[] = "paused";
inline constexpr char kRung[] = "adaptdl:rung";  // the rung up to which a trial may train
inline constexpr int kLastRung = 1 << 20;        // no trial reaches this rung: the trial may train to completion
// The study attribute with the step of rung 0. It is stored as soon as the step is known, so that rungs do not move.
inline constexpr char kFirstRung[] = "adaptdl:first_rung";

// Returns whether a trial is paused: it keeps its checkpoint but holds no device until it is promoted.
bool is_paused(const Trial& trial);
// Returns whether a trial is training or about to train.
bool is_running(const Trial& trial);

struct Study {
  int id = 0;  // unique among all studies of the storage
  std::string name;
  std::vector<Direction> directions;
  std::map<std::string, nlohmann::json> user_attributes, system_attributes;
  std::vector<Trial> trials;  // by trial number
};

}  // namespace adaptdl::sched::tune
