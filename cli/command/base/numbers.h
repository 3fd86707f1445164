// Parses numbers on a command line.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "adaptdl/error.h"

namespace adaptdl::cli {

// Parses a number in [min, max]. Throws UsageError, which names `what` (such as "run: --nodes") and the expected
// `kind` of number.
template <class Number>
Number parse_number(const std::string& text, std::string_view what, Number min, Number max, std::string_view kind) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max)) {
    throw UsageError(fmt::format("{} must be {} from {} to {}, not '{}'", what, kind, min, max, text));
  }
  return value;
}

// Parses the exponent of the power mean over jobs that a policy maximizes.
inline double parse_fairness(const std::string& text, std::string_view what) {
  return parse_number<double>(text, what, -100, 100, "a number");
}

}  // namespace adaptdl::cli
