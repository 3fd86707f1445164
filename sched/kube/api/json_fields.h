// Reads fields of JSON objects that other programs wrote: a field that is missing or has the wrong type is treated as
// empty.
//
// The returned references are valid as long as the object is.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/api/timestamp.h"

namespace adaptdl::kube {

// Returns the value at the end of the path, or a null value if there is none.
inline const nlohmann::json& field(const nlohmann::json& object, std::initializer_list<const char*> path) {
  static const nlohmann::json none;
  const nlohmann::json* here = &object;
  for (const char* name : path) {
    if (!here->is_object()) return none;
    const auto found = here->find(name);
    if (found == here->end()) return none;
    here = &*found;
  }
  return *here;
}

inline std::string text_field(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json& value = field(object, path);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Returns metadata.name.
inline std::string name_of(const nlohmann::json& object) { return text_field(object, {"metadata", "name"}); }

inline std::optional<int> int_field(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json& value = field(object, path);
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number > -2e9 && number < 2e9)) return std::nullopt;
  return static_cast<int>(number);
}

inline bool bool_field(const nlohmann::json& object, std::initializer_list<const char*> path, bool otherwise) {
  const nlohmann::json& value = field(object, path);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

inline std::optional<Time> time_field(const nlohmann::json& object, std::initializer_list<const char*> path) {
  return parse_time(text_field(object, path));
}

// Returns the elements of an array, or no elements if the value has another type.
inline const nlohmann::json::array_t& array_field(const nlohmann::json& object,
                                                  std::initializer_list<const char*> path) {
  static const nlohmann::json::array_t none;
  const nlohmann::json& value = field(object, path);
  return value.is_array() ? value.get_ref<const nlohmann::json::array_t&>() : none;
}

}  // namespace adaptdl::kube
