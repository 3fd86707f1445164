// Distributions as Optuna writes them, and which of them one parameter of a study may have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// Parses `{"name": "FloatDistribution", "attributes": {...}}`. The names in Optuna 2 are accepted too. Throws Error.
Distribution parse_distribution(std::string_view text);
// The text that parse_distribution() accepts. A range whose end is not a step is written with its last step as the end.
std::string to_text(const Distribution& distribution);

// Whether the trials of one study may have both for one parameter: ranges may differ, choices may not. Optuna ignores
// an operation that violates this.
bool are_compatible(const Distribution& one, const Distribution& other);

// The value for an internal one, as Optuna reads it: a value outside of the range is kept. Throws Error if there is no
// such value.
nlohmann::json external_value(const Distribution& distribution, double internal);

}  // namespace adaptdl::sched::tune
