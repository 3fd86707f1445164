// JSON from elsewhere: of a registry, an API server, an image, another process.
//
// Threading: plain functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// Deeper than any document that is meant, and no danger to what walks a value by recursion, as its copies and dump()
// do.
inline constexpr int kDeepestJson = 200;

// Whether the text opens more than `deepest` arrays and objects within each other. It need not be JSON.
bool is_nested_deeper(std::string_view text, int deepest);

// The value; is_discarded() if the text is no JSON, has a number that is too large, or is nested deeper than that.
nlohmann::json parse_foreign_json(std::string_view text, int deepest = kDeepestJson);

}  // namespace adaptdl
