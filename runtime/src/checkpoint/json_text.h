// JSON of checkpoints as text: exact, bounded in depth, and without what JSON cannot say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace adaptdl::checkpoint {

// Deep enough for any state, and shallow enough for parsers that recurse.
inline constexpr int kMaxJsonDepth = 200;

// What to write for `value`: NaN and infinities, which JSON lacks, become {"$float": "nan" | "inf" | "-inf"}. Throws
// CheckpointError, which begins with `what`, on a value that decode_json would not give back.
nlohmann::json encode_json(const nlohmann::json& value, const std::string& what);

// The value that encode_json was given.
nlohmann::json decode_json(const nlohmann::json& value);

// Parses JSON text. Throws Damage, which begins with `what`, on text that is no JSON, is nested too deep, or names a
// key of its outermost object twice.
nlohmann::json parse_json(std::string_view text, const std::string& what);

}  // namespace adaptdl::checkpoint
