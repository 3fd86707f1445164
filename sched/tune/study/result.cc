#include "tune/study/result.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

std::optional<double> number(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

// Returns the position in the training. A fraction of the whole, such as 0.25 or 1.0, is not a position.
std::optional<double> position(const json& object, const char* key) {
  const auto value = number(object, key);
  return value && *value <= 1 && object[key].is_number_float() ? std::nullopt : value;
}

}  // namespace

std::optional<Result> parse_result(std::string_view line, const std::string& metric) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '{') return {};
  json object;
  try {
    PythonJsonReader reader(line);
    object = reader.value();
    reader.end();
  } catch (const Error&) {
    return {};
  }
  const auto value = object.find(metric);
  if (value == object.end() || !(value->is_number() || value->is_null())) return {};
  Result result;
  result.value = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(result.value)) result.value = std::numeric_limits<double>::quiet_NaN();
  result.epoch = number(object, "epoch");
  std::optional<double> step = position(object, "step");
  if (!step) step = position(object, "progress");
  // Results within an epoch share a step, the number of completed epochs.
  if (!step && result.epoch) step = std::floor(*result.epoch);
  if (step && *step >= 0 && *step < 9e15) result.step = std::llround(*step);
  return result;
}

}  // namespace adaptdl::sched::tune
