// Parses the target of an HTTP request, for example "/hints/ns/a%20name?timeout=5".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

struct Target {
  std::vector<std::string> path;             // segments, percent-decoded
  std::map<std::string, std::string> query;  // percent-decoded; the last value of a name is used
};

// Returns nullopt if the target does not begin with '/', or contains a percent sign without two hexadecimal digits.
std::optional<Target> parse_target(std::string_view target);

}  // namespace adaptdl::sched
