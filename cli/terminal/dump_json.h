// Formats JSON as text for standard output.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace adaptdl::cli {

// Returns printable JSON (see printable.h) that any parser reads as an equal value, on one line if `indent` is -1.
// Invalid UTF-8 becomes U+FFFD.
std::string dump_json(const nlohmann::json& value, int indent = 2);
std::string dump_json(const nlohmann::ordered_json& value, int indent = 2);

}  // namespace adaptdl::cli
