// A result that a trial reported: a line of JSON in its file of results (adaptdl/report.h) or on its standard output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::sched::tune {

struct Result {
  double value = 0;                  // NaN if the line has null or a number that is not finite
  std::optional<std::int64_t> step;  // how far the training is
  std::optional<double> epoch;
};

// Returns the line's value of the metric, or none if the line is not a JSON object that has one. The step is "step",
// else "progress", else the whole epochs of "epoch"; a fraction of at most 1.0 is not a step.
std::optional<Result> parse_result(std::string_view line, const std::string& metric);

}  // namespace adaptdl::sched::tune
