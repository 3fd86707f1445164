// A result that a trial reported: a JSON line in its results file (adaptdl/report.h) or on its standard output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::sched::tune {

struct Result {
  double value = 0;                  // NaN if the line contains null or a number that is not finite
  std::optional<std::int64_t> step;  // position in the training
  std::optional<double> epoch;
};

// Returns the result in the line, or nullopt if the line is not a JSON object with the metric. The step is taken from
// "step", otherwise from "progress", otherwise from the number of whole epochs in "epoch"; a fraction of at most 1.0 is
// not a step.
std::optional<Result> parse_result(std::string_view line, const std::string& metric);

}  // namespace adaptdl::sched::tune
