// Formats JSON as YAML for users to read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl::cli {

// Returns lines that any YAML parser reads as a value equal to `value`.
std::string to_yaml(const nlohmann::json& value);

}  // namespace adaptdl::cli
