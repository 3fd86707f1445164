// The verbs of `adaptdl tune` that read studies: ls, show, best and importance; and trials as they, and a search, show
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tune/study.h"

namespace adaptdl::cli {

// Adds the verbs to the command.
void add_study_verbs(CLI::App& app);

// "running", "paused", "waiting", "complete", "pruned" or "failed".
std::string state_text(const sched::tune::Trial& trial);

// The value of a trial that ended, else the last one that it reported, which may not be a number.
std::optional<double> value_of(const sched::tune::Trial& trial);

// "lr=0.01 opt=sgd", numbers with four digits.
std::string parameters_text(const sched::tune::Trial& trial);

// What `adaptdl tune show --json` prints of a trial.
nlohmann::json trial_json(const sched::tune::Study& study, const sched::tune::Trial& trial);

// How many trials are in each state, by the words of state_text().
nlohmann::json count_states(const sched::tune::Study& study);

}  // namespace adaptdl::cli
