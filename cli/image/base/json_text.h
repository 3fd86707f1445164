// String fields in JSON from other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace adaptdl::image {

// Returns the string in a field; "" if the field is missing or not a string.
inline std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace adaptdl::image
