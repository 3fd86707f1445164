// Parsing of untrusted JSON: from a registry, an API server, an image or another process.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// The default maximum depth. No legitimate document is nested more deeply, and copying and dump() can safely recurse to
// this depth.
inline constexpr int kMaxForeignJsonDepth = 200;

// Returns whether arrays and objects are nested more than `max_depth` levels deep. The text need not be valid JSON.
bool is_nested_deeper(std::string_view text, int max_depth);

// Returns approximately how many values the text contains. Each value uses up to 100 bytes of memory once it is parsed.
std::size_t count_values(std::string_view text);

// Parses the text. If the text is not valid JSON, contains a number that is out of range, or is nested more than
// `max_depth` levels deep, returns a discarded value (is_discarded()).
nlohmann::json parse_foreign_json(std::string_view text, int max_depth = kMaxForeignJsonDepth);

// Same as parse_foreign_json, but replaces arrays and objects that are nested more deeply with null.
nlohmann::json parse_shallow_json(std::string_view text, int max_depth = kMaxForeignJsonDepth);

}  // namespace adaptdl
