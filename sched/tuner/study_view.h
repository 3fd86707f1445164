// What a search stores in the trials of a study, and how to read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tune/journal/journal.h"
#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// User attributes of a trial.
inline constexpr char kReason[] = "adaptdl:reason";  // why the trial is in its state; one clause
inline constexpr char kEpoch[] = "adaptdl:epoch";    // epoch of its last result
// The number of its results in the storage. A runner that begins with the first result delivers these results again.
inline constexpr char kResults[] = "adaptdl:results";
// The step of its last result. It is stored only if results did not arrive in the order of their steps.
inline constexpr char kLastStep[] = "adaptdl:last_step";
// Set for trials that `adaptdl tune` runs. Trials of an Optuna worker are left to that worker.
inline constexpr char kOwn[] = "adaptdl:own";
// How many times the trial was continued after the process that ran it had been killed.
inline constexpr char kRestarts[] = "adaptdl:restarts";

// Returns the study with that name, which is valid until the next call to a non-const function of the journal. Throws
// Error if the study was deleted from its storage.
const Study& stored_study(const Journal& journal, const std::string& name);

// REQUIRES that the study has a trial with this number.
const Trial& trial_at(const Study& study, int number);

// Returns a user attribute of the trial; 0 if it is missing or not an integer.
std::int64_t integer_attribute(const Trial& trial, const char* key);

// Returns the study as samplers see it: a paused trial has been judged, so it is treated as pruned.
Study sampled_view(const Study& study);

// Return the value that the trial reported last, which may be NaN, and its step.
std::optional<double> last_value(const Trial& trial);
std::optional<std::int64_t> last_step(const Trial& trial);

// Returns the best completed trial or, if there is none, the best pruned one; null if there is neither.
const Trial* best_trial(const Study& study);

}  // namespace adaptdl::sched::tune
