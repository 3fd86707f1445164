// Search spaces as users write them, on a command line or in a file.
//
//   lr=log:1e-5..1e-1    uniform in the logarithm       layers=2..8        integers, both included
//   drop=0.0..0.5:0.1    0, 0.1, ..., 0.5               opt=sgd|adamw      one of these
//   batch=64             the same in every trial
//
// A range consists of integers if its bounds, and its step if any, are written as integers. A file (docs/tune.md) may
// contain the same notation or maps:
//
//   parameters:
//     lr: {low: 1e-5, high: 1e-1, log: true}
//     opt: [sgd, adamw]
//     momentum: {low: 0.5, high: 0.99, when: {opt: sgd}}
//     batch: 64
//   seed: 7
//
// Errors: UsageError with a one-line message that names the parameter. If the parameter is in a file, the message
// begins with its location in the file.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// Adds a parameter from "NAME=VALUES", replacing any parameter with that name.
void add_parameter(Space& space, std::string_view text);

struct SpaceFile {
  Space space;
  std::optional<std::uint64_t> seed;
};

// Parses a space file. For messages, `where` returns the location of the value at a JSON pointer, such as
// "space.yaml:3".
SpaceFile parse_space(const nlohmann::json& document,
                      const std::function<std::string(const nlohmann::json::json_pointer&)>& where);

// Completes a space: puts each parameter after the parameters in its conditions, and resolves conditions on parameters
// that are the same in every trial. Throws UsageError if a condition names a parameter or value that does not exist, or
// if no parameter is left to search.
void settle(Space& space);

// Returns a document that parse_space() reads as the same space.
nlohmann::json to_json(const Space& space);

// Returns a value as it is written on a command line: a string unchanged, anything else as JSON.
std::string to_text(const nlohmann::json& value);
// Returns "NAME=VALUE NAME=VALUE".
std::string to_text(const Values& values);

// Parses a value of the given distribution from a command line. Throws UsageError if the distribution does not contain
// it.
nlohmann::json parse_value(const std::string& name, const Distribution& distribution, std::string_view text);

}  // namespace adaptdl::sched::tune
