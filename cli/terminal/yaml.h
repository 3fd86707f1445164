// JSON as YAML, for people. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl::cli {

// A text of lines that any YAML parser reads as the same value.
std::string to_yaml(const nlohmann::json& value);

}  // namespace adaptdl::cli
