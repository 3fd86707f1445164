#include "checkpoint/json_text.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/utf8.h"
#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

using nlohmann::json;

namespace {

constexpr const char* kFloatKey = "$float";

json encode(const json& value, const std::string& what, int depth) {
  if (depth > kMaxJsonDepth)
    throw CheckpointError(fmt::format("{} is nested more than {} levels deep", what, kMaxJsonDepth));
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isfinite(number)) return value;
    return json{{kFloatKey, std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  }
  if (value.is_array()) {
    json array = json::array();
    for (const json& item : value) array.push_back(encode(item, what, depth + 1));
    return array;
  }
  if (value.is_object()) {
    json object = json::object();
    for (const auto& [key, item] : value.items()) {
      if (key == kFloatKey) throw CheckpointError(fmt::format("{} contains the reserved key '{}'", what, kFloatKey));
      if (!is_utf8(key)) throw CheckpointError(fmt::format("{} contains a key that is not valid UTF-8", what));
      object[key] = encode(item, what, depth + 1);
    }
    return object;
  }
  if (value.is_binary() || value.is_discarded())
    throw CheckpointError(
        fmt::format("{} contains binary data, which JSON cannot represent; save it with bytes()", what));
  if (value.is_string() && !is_utf8(value.get_ref<const std::string&>()))
    throw CheckpointError(fmt::format("{} contains text that is not valid UTF-8; save it with bytes()", what));
  return value;
}

}  // namespace

json encode_json(const json& value, const std::string& what) { return encode(value, what, 1); }

json decode_json(const json& value) {
  if (value.is_array()) {
    json array = json::array();
    for (const json& item : value) array.push_back(decode_json(item));
    return array;
  }
  if (!value.is_object()) return value;
  if (value.size() == 1 && value.begin().key() == kFloatKey) {
    if (value.begin().value() == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value.begin().value() == "inf") return std::numeric_limits<double>::infinity();
    if (value.begin().value() == "-inf") return -std::numeric_limits<double>::infinity();
  }
  json object = json::object();
  for (const auto& [key, item] : value.items()) object[key] = decode_json(item);
  return object;
}

json parse_json(std::string_view text, const std::string& what) {
  std::set<std::string> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonDepth + 2)
      throw Damage(fmt::format("'{}' is nested more than {} levels deep", what, kMaxJsonDepth));
    if (event == json::parse_event_t::key && depth == 1 && !keys.insert(parsed.get<std::string>()).second)
      throw Damage(fmt::format("'{}' contains the duplicate key '{}'", what, parsed.get<std::string>()));
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    // After the semicolon, the library quotes the invalid token, which may have any length.
    const std::string reason = error.what();
    throw Damage(fmt::format("'{}' is not valid JSON: {}", what, reason.substr(0, reason.find(';'))));
  }
}

}  // namespace adaptdl::checkpoint
