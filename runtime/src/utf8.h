#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// Whether `text` is UTF-8, and so can stand in JSON.
inline bool is_utf8(std::string_view text) {
  if (std::ranges::none_of(text, [](char c) { return (c & 0x80) != 0; })) return true;
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

}  // namespace adaptdl
