// Reads and writes distributions in Optuna's format, and decides which of them a parameter may have within one study.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// Parses `{"name": "FloatDistribution", "attributes": {...}}`. Also accepts the names that Optuna 2 used. Throws Error.
Distribution parse_distribution(std::string_view text);
// Returns text that parse_distribution() accepts. If the end of a range is not on a step, the last step is written
// instead.
std::string to_text(const Distribution& distribution);

// Returns whether trials of one study may have both distributions for the same parameter. Both must have the same type;
// ranges may differ except in `log`, and choices must be equal. Optuna ignores an operation that violates this rule.
bool are_compatible(const Distribution& one, const Distribution& other);

// Converts an internal value in the same way as Optuna: a value outside the range is kept. Throws Error if it
// corresponds to no value, such as the index of a choice that does not exist.
nlohmann::json external_value(const Distribution& distribution, double internal);

}  // namespace adaptdl::sched::tune
