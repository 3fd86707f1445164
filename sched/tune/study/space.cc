#include "tune/study/space.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptdl::sched::tune {
namespace {

// The rounding tolerance as a fraction of a step. A tolerance is necessary because the last bits of a sum of steps may
// be inexact.
constexpr double kRounding = 1e-8;

bool is_close(double a, double b, double step) { return std::abs(a - b) <= kRounding * step; }

std::size_t index_of(const Choice& choice, const nlohmann::json& value) {
  return static_cast<std::size_t>(std::ranges::find(choice.values, value) - choice.values.begin());
}

bool contains(const FloatRange& range, const nlohmann::json& value) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!(number >= range.low && number <= range.high)) return false;
  if (!range.step) return true;
  const double steps = (number - range.low) / *range.step;
  return is_close(steps, std::round(steps), 1);
}

// The bounds of a range from a journal may be any integers, so that their difference requires an unsigned type.
std::uint64_t above_low(const IntRange& range, std::int64_t number) {
  return static_cast<std::uint64_t>(number) - static_cast<std::uint64_t>(range.low);
}

std::uint64_t last_step(const IntRange& range) {
  return above_low(range, range.high) / static_cast<std::uint64_t>(range.step);
}

bool contains(const IntRange& range, const nlohmann::json& value) {
  if (!value.is_number_integer()) return false;
  const auto number = value.get<std::int64_t>();
  return number >= range.low && number <= range.high &&
         above_low(range, number) % static_cast<std::uint64_t>(range.step) == 0;
}

bool contains(const Choice& choice, const nlohmann::json& value) {
  return index_of(choice, value) < choice.values.size();
}

nlohmann::json from_number(const FloatRange& range, double number) {
  if (range.step) number = range.low + std::round((number - range.low) / *range.step) * *range.step;
  number = std::clamp(number, range.low, range.high);
  if (!range.step || contains(range, number)) return number;
  return range.low + std::floor((range.high - range.low) / *range.step + kRounding) * *range.step;
}

nlohmann::json from_number(const IntRange& range, double number) {
  const double steps = std::round((number - static_cast<double>(range.low)) / static_cast<double>(range.step));
  const std::uint64_t last = last_step(range);
  std::uint64_t step = 0;
  if (steps > 0) step = steps >= static_cast<double>(last) ? last : static_cast<std::uint64_t>(steps);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(range.low) +
                                   step * static_cast<std::uint64_t>(range.step));
}

nlohmann::json from_number(const Choice& choice, double number) {
  const double last = static_cast<double>(choice.values.size() - 1);
  return choice.values[static_cast<std::size_t>(std::clamp(std::round(number), 0.0, last))];
}

std::optional<std::uint64_t> count(const FloatRange& range) {
  if (range.low == range.high) return 1;
  if (!range.step) return {};
  return static_cast<std::uint64_t>(std::floor((range.high - range.low) / *range.step + kRounding)) + 1;
}

std::optional<std::uint64_t> count(const IntRange& range) {
  return std::max(last_step(range), last_step(range) + 1);  // the largest possible range has one value more than fits
}

std::optional<std::uint64_t> count(const Choice& choice) { return choice.values.size(); }

}  // namespace

const Parameter* Space::find(const std::string& name) const {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  return found == parameters.end() ? nullptr : &*found;
}

bool contains(const Distribution& distribution, const nlohmann::json& value) {
  return std::visit([&](const auto& each) { return contains(each, value); }, distribution);
}

double to_internal(const Distribution& distribution, const nlohmann::json& value) {
  if (const auto* choice = std::get_if<Choice>(&distribution)) return static_cast<double>(index_of(*choice, value));
  return value.get<double>();
}

nlohmann::json from_internal(const Distribution& distribution, double number) {
  return std::visit([&](const auto& each) { return from_number(each, number); }, distribution);
}

std::optional<std::uint64_t> cardinality(const Distribution& distribution) {
  return std::visit([](const auto& each) { return count(each); }, distribution);
}

bool applies(const Parameter& parameter, const Values& values) {
  return std::ranges::all_of(parameter.when, [&](const Condition& condition) {
    const auto value = values.find(condition.parameter);
    return value != values.end() && std::ranges::find(condition.values, value->second) != condition.values.end();
  });
}

}  // namespace adaptdl::sched::tune
