#include "foreign_json.h"

namespace adaptdl {

namespace {

// Calls `use` with each character outside of strings until it returns false.
template <typename Use>
void each_outside_strings(std::string_view text, Use use) {
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') {
      ++at;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && !use(c)) {
      return;
    }
  }
}

}  // namespace

bool is_nested_deeper(std::string_view text, int deepest) {
  int depth = 0;
  each_outside_strings(text, [&](char c) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    return depth <= deepest;
  });
  return depth > deepest;
}

std::size_t count_values(std::string_view text) {
  std::size_t count = 0;
  each_outside_strings(text, [&](char c) {
    count += c == '[' || c == '{' || c == ',' ? 1 : 0;
    return true;
  });
  return count;
}

nlohmann::json parse_foreign_json(std::string_view text, int deepest) {
  if (is_nested_deeper(text, deepest)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::json parse_shallow_json(std::string_view text, int deepest) {
  using nlohmann::json;
  if (!is_nested_deeper(text, deepest)) return json::parse(text, nullptr, false);
  const auto keep = [deepest](int depth_around, json::parse_event_t event, json&) {
    const bool begins = event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
    return !begins || depth_around < deepest;
  };
  return json::parse(text, keep, false);
}

}  // namespace adaptdl
