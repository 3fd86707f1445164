// Formats a number with a noun, for messages.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace adaptdl {

// Returns a text such as "1 replica" or "8 replicas".
template <typename Number>
std::string counted(Number number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace adaptdl
