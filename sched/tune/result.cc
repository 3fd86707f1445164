#include "tune/result.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

// Python writes NaN, Infinity and -Infinity, which are not JSON; they become null here. REQUIRES that the text is not
// valid JSON as it is.
json parse_python(std::string_view line) {
  std::string text;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') in_string = !in_string;
    if (in_string && line[i] == '\\' && i + 1 < line.size()) text += line[i++];
    std::size_t skipped = 0;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (!in_string && line.substr(i).starts_with(word)) skipped = word.size();
    if (skipped > 0) {
      text += "null";
      i += skipped - 1;
    } else {
      text += line[i];
    }
  }
  return json::parse(text, nullptr, false);
}

std::optional<double> number(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

}  // namespace

std::optional<Result> parse_result(std::string_view line, const std::string& metric) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '{') return {};
  json object = json::parse(line, nullptr, false);
  if (object.is_discarded()) object = parse_python(line);
  if (!object.is_object()) return {};
  const auto value = object.find(metric);
  if (value == object.end() || !(value->is_number() || value->is_null())) return {};
  Result result;
  result.value = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(result.value)) result.value = std::numeric_limits<double>::quiet_NaN();
  auto step = number(object, "step");
  if (!step) step = number(object, "progress");
  if (step && *step >= 0 && *step < 9e15) result.step = std::llround(*step);
  result.epoch = number(object, "epoch");
  return result;
}

}  // namespace adaptdl::sched::tune
