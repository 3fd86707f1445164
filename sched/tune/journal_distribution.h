// Reads and writes distributions in the format of Optuna, and decides which of them one parameter of a study may have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// Parses `{"name": "FloatDistribution", "attributes": {...}}`. The names of Optuna 2 are accepted too. Throws Error.
Distribution parse_distribution(std::string_view text);
// Returns the text that parse_distribution() accepts. If the end of a range is not on a step, its last step is written.
std::string to_text(const Distribution& distribution);

// Returns whether trials of one study may have both distributions for the same parameter. Both must be of the same
// type; ranges may differ except in `log`, and choices must be equal. Optuna ignores an operation that violates this.
bool are_compatible(const Distribution& one, const Distribution& other);

// Returns the value for an internal one, as Optuna reads it: a value outside the range is kept. Throws Error if there
// is no such value.
nlohmann::json external_value(const Distribution& distribution, double internal);

}  // namespace adaptdl::sched::tune
