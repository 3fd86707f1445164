#include "tune/journal/journal_distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {
namespace {

// Numbers stay JSON until it is known whether they must be integers.
struct DistributionFields {
  std::optional<nlohmann::json> low, high, step;
  bool log = false;
  std::optional<std::vector<nlohmann::json>> choices;
};

bool read_attribute(PythonJsonReader& reader, std::string_view key, DistributionFields& found) {
  if (key == "low") {
    found.low = reader.value();
  } else if (key == "high") {
    found.high = reader.value();
  } else if (key == "step" || key == "q") {
    if (!reader.null()) found.step = reader.value();
  } else if (key == "log") {
    found.log = reader.boolean();
  } else if (key == "choices") {
    found.choices.emplace();
    reader.begin_array();
    while (reader.next_item()) found.choices->push_back(reader.value());
  } else {
    return false;
  }
  return true;
}

double number_field(const std::optional<nlohmann::json>& value, const char* name) {
  if (!value || !value->is_number()) throw Error(fmt::format("invalid distribution: {} must be a number", name));
  return value->get<double>();
}

std::int64_t integer_field(const std::optional<nlohmann::json>& value, const char* name) {
  const double number = number_field(value, name);
  if (value->is_number_integer() && !(value->is_number_unsigned() && number >= 0x1p63))
    return value->get<std::int64_t>();
  if (!(std::abs(number) < 0x1p63)) throw Error(fmt::format("invalid distribution: {} is out of range", name));
  return static_cast<std::int64_t>(number);
}

FloatRange float_range_of(const DistributionFields& found) {
  FloatRange range{number_field(found.low, "low"), number_field(found.high, "high"), found.log, {}};
  if (found.step) range.step = number_field(found.step, "step");
  if (!(range.low <= range.high) || (range.log && range.low <= 0) || (range.step && !(*range.step > 0 && !range.log)))
    throw Error(
        "invalid distribution: expected low <= high, a positive step if any, and for a log range, low > 0 and no step");
  return range;
}

IntRange int_range_of(const DistributionFields& found) {
  IntRange range{integer_field(found.low, "low"), integer_field(found.high, "high"), found.log, 1};
  // Optuna 2 also stored a step for logarithmic ranges, but ignored it.
  if (found.step && !found.log) range.step = integer_field(found.step, "step");
  if (range.low > range.high || (range.log && range.low < 1) || range.step < 1)
    throw Error("invalid distribution: expected low <= high, a positive step if any, and for a log range, low > 0");
  return range;
}

Choice choice_of(const DistributionFields& found) {
  if (!found.choices || found.choices->empty()) throw Error("invalid distribution: expected choices");
  return {*found.choices};
}

// Compares choices in the same way as Optuna: true equals 1, and NaN equals itself.
bool is_same_choice(const nlohmann::json& one, const nlohmann::json& other) {
  const auto number = [](const nlohmann::json& value) -> std::optional<double> {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (value.is_number()) return value.get<double>();
    return {};
  };
  const auto a = number(one), b = number(other);
  if (a && b) return *a == *b || (std::isnan(*a) && std::isnan(*b));
  return one == other;
}

// Returns the end of the range as Optuna stores it: Optuna warns about a range whose end is not on a step, and shortens
// the range. The computation uses the decimal digits of the numbers, so that 3 steps of 0.3 are 0.9.
double last_step(const FloatRange& range) {
  if (!range.step) return range.high;
  // The decimal digits do not distinguish smaller steps.
  if (!(std::max(std::abs(range.low), std::abs(range.high)) < 1e6 * *range.step)) return range.high;
  constexpr double kStepRounding = 1e-8;
  const double steps = (range.high - range.low) / *range.step, whole = std::floor(steps + kStepRounding);
  if (steps - whole <= kStepRounding) return range.high;
  if (whole == 0) return range.low;
  const double last = PythonJsonReader(fmt::format("{:.15g}", range.low + whole * *range.step)).number();
  return std::clamp(last, range.low, range.high);  // low may have more digits than `last`
}

std::int64_t last_step(const IntRange& range) {
  const auto span = static_cast<std::uint64_t>(range.high) - static_cast<std::uint64_t>(range.low);
  return range.high - static_cast<std::int64_t>(span % static_cast<std::uint64_t>(range.step));
}

std::string attributes_text(const FloatRange& range) {
  return fmt::format(R"("FloatDistribution", "attributes": {{"step": {}, "low": {}, "high": {}, "log": {}}}}})",
                     range.step ? to_python_json(*range.step) : "null", to_python_json(range.low),
                     to_python_json(last_step(range)), range.log);
}

std::string attributes_text(const IntRange& range) {
  return fmt::format(R"("IntDistribution", "attributes": {{"log": {}, "step": {}, "low": {}, "high": {}}}}})",
                     range.log, range.step, range.low, last_step(range));
}

std::string attributes_text(const Choice& choice) {
  return fmt::format(R"("CategoricalDistribution", "attributes": {{"choices": {}}}}})", to_python_json(choice.values));
}

}  // namespace

Distribution parse_distribution(std::string_view text) {
  PythonJsonReader reader(text);
  std::string name;
  DistributionFields found;
  reader.begin_object();
  while (const auto key = reader.next_key()) {
    if (*key == "name" || *key == "type") {
      name = reader.string();
    } else if (*key == "attributes") {
      reader.begin_object();
      while (const auto attribute = reader.next_key())
        if (!read_attribute(reader, *attribute, found)) reader.skip();
    } else if (!read_attribute(reader, *key, found)) {
      reader.skip();
    }
  }
  reader.end();
  if (name == "CategoricalDistribution" || name == "categorical") return choice_of(found);
  if (name == "LogUniformDistribution" || name == "IntLogUniformDistribution") found.log = true;
  if (name == "IntDistribution" || name == "IntUniformDistribution" || name == "IntLogUniformDistribution" ||
      name == "int")
    return int_range_of(found);
  if (name == "FloatDistribution" || name == "UniformDistribution" || name == "LogUniformDistribution" ||
      name == "DiscreteUniformDistribution" || name == "float")
    return float_range_of(found);
  throw Error(fmt::format("unknown distribution '{}'", one_line(name, 100)));
}

std::string to_text(const Distribution& distribution) {
  return R"({"name": )" + std::visit([](const auto& each) { return attributes_text(each); }, distribution);
}

bool are_compatible(const Distribution& one, const Distribution& other) {
  if (one.index() != other.index()) return false;
  if (const auto* range = std::get_if<FloatRange>(&one)) return range->log == std::get<FloatRange>(other).log;
  if (const auto* range = std::get_if<IntRange>(&one)) return range->log == std::get<IntRange>(other).log;
  const auto& values = std::get<Choice>(one).values;
  const auto& others = std::get<Choice>(other).values;
  return std::ranges::equal(values, others, is_same_choice);
}

nlohmann::json external_value(const Distribution& distribution, double internal) {
  if (std::holds_alternative<FloatRange>(distribution)) return internal;
  // The number is truncated, as Python's int() does.
  if (std::holds_alternative<IntRange>(distribution)) {
    if (!(std::abs(internal) < 0x1p63))
      throw Error(fmt::format("{} is not a valid value for an integer parameter", internal));
    return static_cast<std::int64_t>(internal);
  }
  const auto& values = std::get<Choice>(distribution).values;
  if (!(internal > -1 && internal < static_cast<double>(values.size())))
    throw Error(fmt::format("choice {} does not exist: expected 0 to {}", internal, values.size() - 1));
  return values[static_cast<std::size_t>(internal)];
}

}  // namespace adaptdl::sched::tune
