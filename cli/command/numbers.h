// Numbers as words of a command line.
//
// Threading: free of state.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "adaptdl/error.h"

namespace adaptdl::cli {

// A number in [least, most]. Throws UsageError that names `what` (such as "run: --nodes") and says what `kind` of
// number it takes.
template <class Number>
Number parse_number(const std::string& text, std::string_view what, Number least, Number most, std::string_view kind) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw UsageError(fmt::format("{} takes {} from {} to {}, not '{}'", what, kind, least, most, text));
  }
  return value;
}

// The exponent of the power mean that a policy maximizes over jobs.
inline double parse_fairness(const std::string& text, std::string_view what) {
  return parse_number<double>(text, what, -100, 100, "a number");
}

}  // namespace adaptdl::cli
