// JSON text in checkpoints. Values are restored exactly, and their nesting is limited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace adaptdl::checkpoint {

// This depth is sufficient for any state, and recursive parsers can safely recurse to it.
inline constexpr int kMaxJsonDepth = 200;

// Encodes `value` for writing: NaN and infinities, which JSON cannot represent, become {"$float": "nan" | "inf" |
// "-inf"}. Throws CheckpointError, whose message begins with `what`, on a value that decode_json would not restore.
nlohmann::json encode_json(const nlohmann::json& value, const std::string& what);

// Restores the value that was passed to encode_json.
nlohmann::json decode_json(const nlohmann::json& value);

// Parses JSON text. Throws Damage, whose message begins with `what`, on text that is not JSON, is nested too deeply, or
// has a duplicate key in its outermost object.
nlohmann::json parse_json(std::string_view text, const std::string& what);

}  // namespace adaptdl::checkpoint
