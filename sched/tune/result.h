// What a trial reported: a line of JSON, from its file of results (adaptdl/report.h) or its standard output.
//
// Threading: functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::sched::tune {

struct Result {
  double value = 0;                  // not a number where the line has null or NaN
  std::optional<std::int64_t> step;  // how far the training was
  std::optional<double> epoch;
};

// The line's value of the metric; none if the line is not a JSON object that has one. The step is "step", else
// "progress", unless that is a fraction of at most 1.0, else the whole epochs.
std::optional<Result> parse_result(std::string_view line, const std::string& metric);

}  // namespace adaptdl::sched::tune
