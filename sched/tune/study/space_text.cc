#include "tune/study/space_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/utf8.h"

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

// Numbers are stored as double, which is exact for integers up to this one.
constexpr double kMaxInteger = 9007199254740992;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UsageError(fmt::format("invalid parameter '{}': {}", name, why));
}

// Returns an integer, another finite number, or null if the text is neither.
json parse_number(std::string_view text) {
  std::int64_t integer = 0;
  const char* const end = text.data() + text.size();
  if (const auto [rest, error] = std::from_chars(text.data(), end, integer); error == std::errc() && rest == end)
    return integer;
  double number = 0;
  if (const auto [rest, error] = std::from_chars(text.data(), end, number);
      error == std::errc() && rest == end && std::isfinite(number))
    return number;
  return nullptr;
}

json parse_scalar(std::string_view text) {
  if (const json number = parse_number(text); !number.is_null()) return number;
  if (text == "true" || text == "false") return text == "true";
  if (text == "null") return nullptr;
  return text;
}

Distribution make_range(const std::string& name, const json& low, const json& high, const json& step, bool log) {
  for (const auto& [what, value] : {std::pair("lower bound", &low), std::pair("upper bound", &high)})
    if (!value->is_number()) refuse(name, fmt::format("the {} must be a number, not '{}'", what, to_text(*value)));
  if (!step.is_null() && !step.is_number())
    refuse(name, fmt::format("the step must be a number, not '{}'", to_text(step)));
  for (const json* const value : {&low, &high, &step})
    if (value->is_number_integer() && std::abs(value->get<double>()) > kMaxInteger)
      refuse(name, fmt::format("integers must be at most 2^53 in magnitude, not {}", to_text(*value)));
  if (low.get<double>() > high.get<double>())
    refuse(name, fmt::format("the lower bound {} is above the upper bound {}", to_text(low), to_text(high)));
  if (log && low.get<double>() <= 0)
    refuse(name, fmt::format("a log range must begin above 0, not at {}", to_text(low)));
  if (log && !step.is_null()) refuse(name, "a log range cannot have a step");
  if (!step.is_null() && step.get<double>() <= 0)
    refuse(name, fmt::format("the step must be above 0, not {}", to_text(step)));
  if (low.is_number_integer() && high.is_number_integer() && (step.is_null() || step.is_number_integer()))
    return IntRange{low.get<std::int64_t>(), high.get<std::int64_t>(), log,
                    step.is_null() ? 1 : step.get<std::int64_t>()};
  FloatRange range{low.get<double>(), high.get<double>(), log, {}};
  if (!step.is_null()) range.step = step.get<double>();
  return range;
}

Distribution make_choice(const std::string& name, const json& values) {
  if (!values.is_array() || values.empty()) refuse(name, "expected at least one value to choose from");
  Choice choice;
  for (const json& value : values) {
    if (value.is_structured()) refuse(name, "values to choose from must be strings, numbers, booleans or null");
    if (std::ranges::find(choice.values, value) != choice.values.end())
      refuse(name, fmt::format("duplicate value '{}'", to_text(value)));
    choice.values.push_back(value);
  }
  return choice;
}

std::optional<Distribution> parse_range(const std::string& name, std::string_view text) {
  const bool log = text.starts_with("log:");
  if (log) text.remove_prefix(4);
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (log) refuse(name, "expected log:LOW..HIGH");
    return {};
  }
  const std::size_t colon = text.find(':', dots);
  const json step = colon == std::string_view::npos ? json() : parse_scalar(text.substr(colon + 1));
  if (colon != std::string_view::npos && step.is_null()) refuse(name, "expected LOW..HIGH:STEP");
  return make_range(name, parse_scalar(text.substr(0, dots)),
                    parse_scalar(text.substr(dots + 2, colon == std::string_view::npos ? colon : colon - dots - 2)),
                    step, log);
}

std::optional<Distribution> parse_choice(const std::string& name, std::string_view text) {
  if (text.find('|') == std::string_view::npos) return {};
  json values = json::array();
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('|', start), text.size());
    if (end == start) refuse(name, "one of the choices is empty");
    values.push_back(parse_scalar(text.substr(start, end - start)));
    start = end + 1;
  }
  return make_choice(name, values);
}

bool is_name(std::string_view name) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 && name.front() != '-' &&
         name.front() != '.' && std::ranges::all_of(name, is_word);
}

// Adds a parameter, replacing a parameter or fixed value with that name.
void set(Space& space, Parameter parameter) {
  space.fixed.erase(parameter.name);
  const auto found = std::ranges::find(space.parameters, parameter.name, &Parameter::name);
  if (found == space.parameters.end())
    space.parameters.push_back(std::move(parameter));
  else
    *found = std::move(parameter);
}

void fix(Space& space, const std::string& name, json value) {
  std::erase_if(space.parameters, [&](const Parameter& each) { return each.name == name; });
  space.fixed[name] = std::move(value);
}

void add_text(Space& space, const std::string& name, std::string_view text) {
  if (!is_name(name))
    refuse(name, "a name must contain only letters, digits, '_', '-' and '.', and begin with a letter or '_'");
  if (text.empty()) refuse(name, "expected LOW..HIGH, log:LOW..HIGH, A|B|C or a value after '='");
  if (auto range = parse_range(name, text)) return set(space, {name, std::move(*range), {}});
  if (auto choice = parse_choice(name, text)) return set(space, {name, std::move(*choice), {}});
  fix(space, name, parse_scalar(text));
}

std::vector<Condition> parse_conditions(const std::string& name, const json& when) {
  if (!when.is_object()) refuse(name, "'when' must map parameters to values");
  std::vector<Condition> conditions;
  for (const auto& [parameter, value] : when.items())
    conditions.push_back({parameter, value.is_array() ? value.get<std::vector<json>>() : std::vector<json>{value}});
  return conditions;
}

// Converts a string that contains a number to that number, because YAML reads 1e-5 as a string.
json number_or_same(const json& value) {
  return value.is_string() ? parse_scalar(value.get_ref<const std::string&>()) : value;
}

void add_map(Space& space, const std::string& name, const json& map) {
  static constexpr std::string_view kKeys[] = {"low", "high", "log", "step", "choices", "when"};
  for (const auto& [key, value] : map.items())
    if (std::ranges::find(kKeys, key) == std::end(kKeys))
      refuse(name, fmt::format("unknown key '{}': expected low, high, log, step, choices or when", key));
  Parameter parameter{name, {}, {}};
  if (map.contains("when")) parameter.when = parse_conditions(name, map["when"]);
  if (map.contains("choices")) {
    parameter.distribution = make_choice(name, map["choices"]);
  } else {
    const json log = map.value("log", json(false));
    if (!log.is_boolean()) refuse(name, "'log' must be true or false");
    if (!map.contains("low") || !map.contains("high")) refuse(name, "expected low and high, or choices");
    parameter.distribution = make_range(name, number_or_same(map["low"]), number_or_same(map["high"]),
                                        number_or_same(map.value("step", json())), log.get<bool>());
  }
  set(space, std::move(parameter));
}

void add_value(Space& space, const std::string& name, const json& value) {
  if (!is_name(name))
    refuse(name, "a name must contain only letters, digits, '_', '-' and '.', and begin with a letter or '_'");
  if (value.is_string()) return add_text(space, name, value.get_ref<const std::string&>());
  if (value.is_object()) return add_map(space, name, value);
  if (value.is_array()) return set(space, {name, make_choice(name, value), {}});
  fix(space, name, value);
}

// Puts each parameter after the parameters in its conditions.
void sort_by_conditions(Space& space) {
  std::vector<Parameter> sorted, left = std::move(space.parameters);
  const auto is_there = [&](const Condition& condition) {
    return std::ranges::find(sorted, condition.parameter, &Parameter::name) != sorted.end();
  };
  while (!left.empty()) {
    const auto next =
        std::ranges::find_if(left, [&](const Parameter& each) { return std::ranges::all_of(each.when, is_there); });
    if (next == left.end()) {
      const Parameter& first = left.front();
      const auto missing = std::ranges::find_if_not(first.when, is_there);
      const bool exists = std::ranges::find(left, missing->parameter, &Parameter::name) != left.end();
      refuse(first.name,
             exists ? fmt::format("circular condition: 'when' names '{}', whose own condition leads to a cycle",
                                  missing->parameter)
                    : fmt::format("'when' names the unknown parameter '{}'", missing->parameter));
    }
    sorted.push_back(std::move(*next));
    left.erase(next);
  }
  space.parameters = std::move(sorted);
}

// If a parameter has the same value in every trial, each condition on it either always holds or never holds. Removes
// the conditions that always hold, and the parameters with a condition that never holds. Returns whether a parameter
// was removed, because that may decide the conditions on it.
bool resolve_fixed(Space& space) {
  const auto dropped = std::erase_if(space.parameters, [&](Parameter& parameter) {
    bool never = std::ranges::any_of(
        parameter.when, [&](const Condition& condition) { return space.never.contains(condition.parameter); });
    std::erase_if(parameter.when, [&](const Condition& condition) {
      const auto fixed = space.fixed.find(condition.parameter);
      if (fixed == space.fixed.end()) return false;
      never = never || std::ranges::find(condition.values, fixed->second) == condition.values.end();
      return true;
    });
    if (never) space.never.insert(parameter.name);
    return never;
  });
  return dropped > 0;
}

// Rejects conditions on values that a parameter cannot have, because they must be mistakes.
void check_conditions(const Space& space) {
  for (const Parameter& parameter : space.parameters)
    for (const Condition& condition : parameter.when)
      for (const json& value : condition.values) {
        const Parameter* const other = space.find(condition.parameter);
        if (other != nullptr && !contains(other->distribution, value))
          refuse(parameter.name, fmt::format("'when' names the value '{}', which parameter '{}' cannot have",
                                             to_text(value), condition.parameter));
      }
}

}  // namespace

void add_parameter(Space& space, std::string_view text) {
  if (!is_utf8(text)) throw UsageError("invalid parameter: it must be valid UTF-8");
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    throw UsageError(fmt::format("invalid parameter '{}': expected NAME=VALUES, such as lr=log:1e-5..1e-1", text));
  add_text(space, std::string(text.substr(0, equals)), text.substr(equals + 1));
}

SpaceFile parse_space(const json& document, const std::function<std::string(const json::json_pointer&)>& where) {
  using Pointer = json::json_pointer;
  if (!document.is_object() || !document.contains("parameters") || !document["parameters"].is_object())
    throw UsageError(
        fmt::format("{}: expected a mapping whose key 'parameters' maps names to values", where(Pointer())));
  SpaceFile file;
  for (const auto& [key, value] : document.items()) {
    if (key != "parameters" && key != "seed")
      throw UsageError(fmt::format("{}: unknown key '{}': expected parameters or seed", where(Pointer() / key), key));
  }
  for (const auto& [name, value] : document["parameters"].items()) {
    try {
      add_value(file.space, name, value);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", where(Pointer("/parameters") / name), error.what()));
    }
  }
  if (const auto seed = document.find("seed"); seed != document.end()) {
    if (!seed->is_number_integer() || *seed < 0)
      throw UsageError(fmt::format("{}: the seed must be a non-negative integer", where(Pointer("/seed"))));
    file.seed = seed->get<std::uint64_t>();
  }
  return file;
}

void settle(Space& space) {
  while (resolve_fixed(space)) {
  }
  sort_by_conditions(space);
  check_conditions(space);
  if (space.parameters.empty()) throw UsageError("no parameters to search; add some with -P or --space");
}

json to_json(const Space& space) {
  json parameters = json::object();
  for (const Parameter& parameter : space.parameters) {
    json& map = parameters[parameter.name] = json::object();
    std::visit(
        [&map](const auto& range) {
          if constexpr (requires { range.values; }) {
            map["choices"] = range.values;
          } else {
            map["low"] = range.low;
            map["high"] = range.high;
            if (range.log) map["log"] = true;
            if constexpr (requires { range.step.has_value(); }) {
              if (range.step) map["step"] = *range.step;
            } else if (range.step != 1) {
              map["step"] = range.step;
            }
          }
        },
        parameter.distribution);
    for (const Condition& condition : parameter.when) map["when"][condition.parameter] = condition.values;
  }
  for (const auto& [name, value] : space.fixed) parameters[name] = value;
  return {{"parameters", parameters}};
}

std::string to_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

std::string to_text(const Values& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, to_text(value));
  return text;
}

json parse_value(const std::string& name, const Distribution& distribution, std::string_view text) {
  json value = parse_scalar(text);
  // A choice may contain a string that looks like a number.
  if (!contains(distribution, value) && contains(distribution, json(text))) value = text;
  if (std::holds_alternative<FloatRange>(distribution) && value.is_number()) value = value.get<double>();
  if (!contains(distribution, value)) refuse(name, fmt::format("value '{}' is not in the search space", text));
  return value;
}

}  // namespace adaptdl::sched::tune
