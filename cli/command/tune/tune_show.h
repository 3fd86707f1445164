// Defines the verbs of `adaptdl tune` that read studies (ls, show, best and importance), and formats trials for them
// and for a running search.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tune/study/study.h"

namespace adaptdl::cli {

// Adds the verbs to the command.
void add_study_verbs(CLI::App& app);

// Returns "running", "paused", "waiting", "complete", "pruned" or "failed".
std::string state_text(const sched::tune::Trial& trial);

// Returns the trial's final value or, if it has none, the last value that the trial reported, which may be NaN.
std::optional<double> value_of(const sched::tune::Trial& trial);

// Returns text such as "lr=0.01 opt=sgd", with four significant digits per number.
std::string parameters_text(const sched::tune::Trial& trial);

// Returns a trial as `adaptdl tune show --json` prints it.
nlohmann::json trial_json(const sched::tune::Study& study, const sched::tune::Trial& trial);

// Returns the number of trials in each state, under the names that state_text() returns.
nlohmann::json count_states(const sched::tune::Study& study);

}  // namespace adaptdl::cli
