// What reasons are made of.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace adaptdl::sched {

// "1 replica", "8 replicas".
template <typename Number>
std::string counted(Number number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace adaptdl::sched
