#include "terminal/yaml.h"

#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <regex>

namespace adaptdl::cli {
namespace {

// Returns whether parsers read the text as a string even without quotes. The emitter itself adds the quotes that YAML's
// syntax requires.
bool reads_as_text(const std::string& text) {
  static const std::regex word("[A-Za-z/][A-Za-z0-9 _./:,;()+-]*");
  static const std::regex value("true|false|null|yes|no|on|off|y|n", std::regex::icase);
  return text.size() < 1000 && std::regex_match(text, word) && !std::regex_match(text, value);
}

void emit(YAML::Emitter& out, const nlohmann::json& value) {
  if (value.is_object()) {
    out << (value.empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
    for (const auto& [name, member] : value.items()) {
      out << YAML::Key;
      emit(out, name);
      out << YAML::Value;
      emit(out, member);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    out << (value.empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const auto& member : value) emit(out, member);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (!reads_as_text(text)) out << YAML::DoubleQuoted;
    out << text;
  } else if (value.is_null()) {
    out << YAML::Null;
  } else {
    out << value.dump();
  }
}

}  // namespace

std::string to_yaml(const nlohmann::json& value) {
  YAML::Emitter out;
  emit(out, value);
  return std::string(out.c_str()) + '\n';
}

}  // namespace adaptdl::cli
