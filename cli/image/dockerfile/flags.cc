#include "image/dockerfile/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

std::string unknown(std::string_view instruction, std::string_view name, const std::vector<Flags::Known>& known) {
  std::vector<std::string> names;
  for (const Flags::Known& flag : known)
    if (flag.kind != Flags::Kind::kRefused) names.push_back(fmt::format("--{}", flag.name));
  if (names.empty()) return fmt::format("{0}: unknown flag --{1}; {0} accepts no flags", instruction, name);
  return fmt::format("{}: unknown flag --{}: expected {}", instruction, name, fmt::join(names, ", "));
}

}  // namespace

Flags::Flags(std::string_view instruction, const std::vector<std::string>& words, const std::vector<Known>& known) {
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto flag = std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.name == name; });
    if (flag == known.end()) throw Error(unknown(instruction, name, known));
    if (flag->kind == Kind::kRefused) throw Error(fmt::format("{} --{} {}", instruction, name, flag->reason));
    std::vector<std::string>& values = values_[name];
    if (!values.empty() && flag->kind != Kind::kTexts)
      throw Error(fmt::format("{}: duplicate flag --{}", instruction, name));
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (flag->kind == Kind::kBool) {
      value = equals == std::string::npos ? "true" : lower(value);
      if (value != "true" && value != "false")
        throw Error(fmt::format("{} --{}: invalid value '{}': expected true or false", instruction, name, value));
    } else if (value.empty()) {
      throw Error(fmt::format("{} --{} needs a value: --{}=…", instruction, name, name));
    }
    values.push_back(value);
  }
}

bool Flags::flag(const std::string& name) const { return text(name) == "true"; }

std::string Flags::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second.front();
}

std::vector<std::string> Flags::texts(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

}  // namespace adaptdl::image
