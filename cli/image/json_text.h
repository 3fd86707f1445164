// Texts in JSON that others wrote.
//
// Threading: plain functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace adaptdl::image {

// That of a field; "" if it is missing or no text.
inline std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace adaptdl::image
