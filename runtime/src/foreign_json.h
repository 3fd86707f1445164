// Parsing of untrusted JSON: from a registry, an API server, an image or another process.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// The maximum depth: no valid document is nested deeper, and copies and dump() can recurse so far.
inline constexpr int kDeepestJson = 200;

// Returns whether arrays and objects are nested deeper than `deepest`. The text need not be valid JSON.
bool is_nested_deeper(std::string_view text, int deepest);

// Returns approximately how many values the text has. Each uses up to 100 bytes of memory once it is parsed.
std::size_t count_values(std::string_view text);

// Parses the text. Returns a discarded value (is_discarded()) if it is not valid JSON, has a number out of range, or is
// nested deeper than `deepest`.
nlohmann::json parse_foreign_json(std::string_view text, int deepest = kDeepestJson);

// The same, but arrays and objects that are nested deeper are replaced by null.
nlohmann::json parse_shallow_json(std::string_view text, int deepest = kDeepestJson);

}  // namespace adaptdl
