// Search spaces as users write them, on a command line or in a file.
//
//   lr=log:1e-5..1e-1    uniform in the logarithm       layers=2..8        integers, both included
//   drop=0.0..0.5:0.1    0, 0.1, ..., 0.5               opt=sgd|adamw      one of these
//   batch=64             the same in every trial
//
// A range is of integers if both bounds are written as such. In a file (docs/tune.md), the same texts, or
//
//   parameters:
//     lr: {low: 1e-5, high: 1e-1, log: true}
//     opt: [sgd, adamw]
//     momentum: {low: 0.5, high: 0.99, when: {opt: sgd}}
//     batch: 64
//   seed: 7
//
// Errors: UsageError, one line that names the parameter, in a file after the place.
// Threading: functions of their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// Adds a parameter from "NAME=VALUES", in place of one of that name.
void add_parameter(Space& space, std::string_view text);

struct SpaceFile {
  Space space;
  std::optional<std::uint64_t> seed;
};

// `where` gives the place of a value, by its JSON pointer, for messages: "space.yaml:3".
SpaceFile parse_space(const nlohmann::json& document, const std::function<std::string(const std::string&)>& where);

// Completes a space: puts each parameter behind those that its conditions name, and resolves conditions on parameters
// that are the same in every trial. Throws UsageError if a condition names what is not there, or nothing is left to
// search.
void settle(Space& space);

// What parse_space() reads as the same space.
nlohmann::json to_json(const Space& space);

// A value as it is written in a command line: strings as they are, everything else as JSON.
std::string to_text(const nlohmann::json& value);
// "NAME=VALUE NAME=VALUE".
std::string to_text(const Values& values);

// Reads a value of that distribution from a command line. Throws UsageError if the distribution does not contain it.
nlohmann::json parse_value(const std::string& name, const Distribution& distribution, std::string_view text);

}  // namespace adaptdl::sched::tune
