#include "base/foreign_json.h"

#include <string>

namespace adaptdl {

namespace {

// Calls `use` with each character outside strings and its position, until `use` returns false.
template <typename Use>
void each_outside_strings(std::string_view text, Use use) {
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') {
      ++at;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && !use(c, at)) {
      return;
    }
  }
}

}  // namespace

bool is_nested_deeper(std::string_view text, int max_depth) {
  int depth = 0;
  each_outside_strings(text, [&](char c, std::size_t) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    return depth <= max_depth;
  });
  return depth > max_depth;
}

std::size_t count_values(std::string_view text) {
  std::size_t count = 0;
  each_outside_strings(text, [&](char c, std::size_t) {
    count += c == '[' || c == '{' || c == ',' ? 1 : 0;
    return true;
  });
  return count;
}

nlohmann::json parse_foreign_json(std::string_view text, int max_depth) {
  if (is_nested_deeper(text, max_depth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::json parse_shallow_json(std::string_view text, int max_depth) {
  if (!is_nested_deeper(text, max_depth)) return nlohmann::json::parse(text, nullptr, false);
  std::string kept;
  std::size_t from = 0;  // start of the next part to keep
  int depth = 0;
  each_outside_strings(text, [&](char c, std::size_t at) {
    if ((c == '[' || c == '{') && ++depth == max_depth + 1) kept.append(text.substr(from, at - from)).append("null");
    if ((c == ']' || c == '}') && depth-- == max_depth + 1) from = at + 1;
    return true;
  });
  if (depth <= max_depth) kept.append(text.substr(from));
  return nlohmann::json::parse(kept, nullptr, false);
}

}  // namespace adaptdl
