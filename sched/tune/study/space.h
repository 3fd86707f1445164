// The search space of a study: the parameters of its trials, and the values from which these are drawn.
//
// Values are JSON as a user writes them: numbers, and for choices also strings, true, false and null. Internal values
// are numbers, as in Optuna's storage: a choice is stored as its index, and any other value unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace adaptdl::sched::tune {

struct FloatRange {
  double low = 0, high = 1;    // both included; finite, low <= high
  bool log = false;            // uniform in the logarithm; requires low > 0 and no step
  std::optional<double> step;  // low, low + step, ...; > 0

  bool operator==(const FloatRange&) const = default;
};

struct IntRange {
  std::int64_t low = 0, high = 1;  // both included; low <= high
  bool log = false;                // requires low >= 1 and step 1
  std::int64_t step = 1;           // >= 1

  bool operator==(const IntRange&) const = default;
};

struct Choice {
  std::vector<nlohmann::json> values;  // at least one, all different; null, booleans, numbers or strings

  bool operator==(const Choice&) const = default;
};

using Distribution = std::variant<FloatRange, IntRange, Choice>;

// A parameter exists in a trial only if `parameter`, which comes before it, exists and has one of these values.
struct Condition {
  std::string parameter;
  std::vector<nlohmann::json> values;
};

struct Parameter {
  std::string name;
  Distribution distribution;
  std::vector<Condition> when;  // all must hold
};

using Values = std::map<std::string, nlohmann::json>;

struct Space {
  std::vector<Parameter> parameters;  // names are unique; a condition refers to an earlier parameter
  Values fixed;                       // the same in every trial; no name is also in `parameters`
  std::set<std::string> never = {};   // parameters that no trial has because of the fixed values

  const Parameter* find(const std::string& name) const;
};

// Returns whether the distribution contains the value, up to rounding of floating-point steps.
bool contains(const Distribution& distribution, const nlohmann::json& value);

// Convert a value that the distribution contains to its internal number, and an internal number to a value.
// from_internal() rounds to the nearest step and clamps to the range.
double to_internal(const Distribution& distribution, const nlohmann::json& value);
nlohmann::json from_internal(const Distribution& distribution, double number);

// Returns the number of different values, or nullopt if it is infinite (a float without a step and with low < high).
std::optional<std::uint64_t> cardinality(const Distribution& distribution);

// Returns whether a parameter exists in a trial with these values.
bool applies(const Parameter& parameter, const Values& values);

}  // namespace adaptdl::sched::tune
