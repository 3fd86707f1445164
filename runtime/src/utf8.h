#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace adaptdl {

// Whether `text` is UTF-8, and so can stand in JSON.
inline bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

}  // namespace adaptdl
