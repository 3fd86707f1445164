// Parsing of untrusted JSON: from a registry, an API server, an image or another process.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// Deeper than any valid document, and shallow enough for the recursion of copies and dump().
inline constexpr int kDeepestJson = 200;

// Returns whether arrays and objects are nested deeper than `deepest`. The text need not be valid JSON.
bool is_nested_deeper(std::string_view text, int deepest);

// Returns about how many values the text has, each of which takes up to 100 bytes of memory once it is parsed.
std::size_t count_values(std::string_view text);

// Returns the value, or a discarded one (is_discarded()) if the text is not valid JSON, has a number out of range, or
// is nested deeper than `deepest`.
nlohmann::json parse_foreign_json(std::string_view text, int deepest = kDeepestJson);

// The same, but arrays and objects that are nested deeper are replaced by null.
nlohmann::json parse_shallow_json(std::string_view text, int deepest = kDeepestJson);

}  // namespace adaptdl
