#include "tune/study/command_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "adaptdl/error.h"
#include "tune/study/space_text.h"

namespace adaptdl::sched::tune {
namespace {

// A piece of an argument: literal text or a parameter name.
struct Piece {
  std::string text;
  bool is_name = false;
};

std::vector<Piece> split_argument(const std::string& argument) {
  std::vector<Piece> pieces{{}};
  const auto unmatched = [&](char brace) {
    return UsageError(
        fmt::format("invalid argument '{0}': unmatched '{1}'; write {1}{1} for a literal brace", argument, brace));
  };
  for (std::size_t i = 0; i < argument.size(); ++i) {
    const char c = argument[i];
    if (c != '{' && c != '}') {
      pieces.back().text += c;
    } else if (i + 1 < argument.size() && argument[i + 1] == c) {
      pieces.back().text += c;
      ++i;
    } else {
      const std::size_t end = argument.find('}', i);
      if (c == '}' || end == std::string::npos) throw unmatched(c);
      pieces.push_back({argument.substr(i + 1, end - i - 1), true});
      pieces.emplace_back();
      i = end;
    }
  }
  return pieces;
}

// Returns nullopt if the argument names a parameter that is not in `values`.
std::optional<std::string> fill_in(const std::string& argument, const Values& values) {
  std::string filled;
  for (const Piece& piece : split_argument(argument)) {
    const auto value = piece.is_name ? values.find(piece.text) : values.end();
    if (piece.is_name && value == values.end()) return {};
    filled += piece.is_name ? to_text(value->second) : piece.text;
  }
  return filled;
}

std::string variable(const std::string& parameter) {
  std::string name = "ADAPTDL_PARAM_";
  for (const unsigned char c : parameter) name += std::isalnum(c) != 0 ? static_cast<char>(std::toupper(c)) : '_';
  return name;
}

}  // namespace

void check_command(const std::vector<std::string>& command, const Space& space) {
  std::vector<std::string> names;
  for (const Parameter& parameter : space.parameters) names.push_back(parameter.name);
  for (const auto& [name, value] : space.fixed) names.push_back(name);
  names.insert(names.end(), space.never.begin(), space.never.end());
  std::map<std::string, std::string> variables;
  for (const std::string& name : names) {
    const auto [other, is_new] = variables.emplace(variable(name), name);
    if (!is_new)
      throw UsageError(fmt::format("parameters '{}' and '{}' set the same environment variable {}", other->second, name,
                                   other->first));
  }
  for (const std::string& argument : command)
    for (const Piece& piece : split_argument(argument))
      if (piece.is_name && std::ranges::find(names, piece.text) == names.end())
        throw UsageError(
            fmt::format("unknown parameter '{0}' in the argument '{1}'; the search space has {2}; "
                        "write {{{{{0}}}}} for the literal text",
                        piece.text, argument, fmt::join(names, ", ")));
}

std::vector<std::string> make_command(const std::vector<std::string>& command, const Values& values) {
  std::vector<std::string> filled;
  bool option = false;  // whether the previous argument is an option that does not contain its value
  for (const std::string& argument : command) {
    const auto text = fill_in(argument, values);
    if (text) {
      filled.push_back(*text);
    } else if (option && argument.starts_with('{')) {
      filled.pop_back();
    }
    option = text && argument.starts_with('-') && argument.find('=') == std::string::npos;
  }
  return filled;
}

std::vector<std::pair<std::string, std::string>> parameter_variables(const Values& values) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [name, value] : values) variables.emplace_back(variable(name), to_text(value));
  return variables;
}

}  // namespace adaptdl::sched::tune
