#include "image/dockerfile/shell_pattern.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "image/base/glob.h"

namespace adaptdl::image {
namespace {

Glob glob_of(std::string_view text) {
  const std::u32string pattern = characters_of(text);
  Glob glob;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    char32_t c = pattern[at];
    if (c == U'*') {
      glob.add_many(true);
    } else if (c == U'?') {
      glob.add_one(true);
    } else if (c != U'\\') {
      glob.add_character(c);
    } else {
      c = ++at < pattern.size() ? pattern[at] : U'\0';
      // '}' and '/' would end the pattern, so they can be escaped as well.
      if (std::u32string_view(U"*?\\}/").find(c) == std::u32string_view::npos)
        throw Error(fmt::format("invalid pattern '{}': \\ can only escape * ? \\ }} and /", text));
      glob.add_character(c);
    }
  }
  return glob;
}

}  // namespace

std::string without_prefix(std::string_view value, std::string_view pattern, bool longest) {
  const std::u32string characters = characters_of(value);
  const Glob glob = glob_of(pattern);
  const auto end = longest ? glob.longest(characters) : glob.shortest(characters);
  return text_of(std::u32string_view(characters).substr(end.value_or(0)));
}

std::string without_suffix(std::string_view value, std::string_view pattern, bool longest) {
  std::u32string characters = characters_of(value);
  Glob glob = glob_of(pattern);
  glob.reverse();
  std::reverse(characters.begin(), characters.end());
  const auto end = longest ? glob.longest(characters) : glob.shortest(characters);
  characters.erase(0, end.value_or(0));
  std::reverse(characters.begin(), characters.end());
  return text_of(characters);
}

std::string replaced(std::string_view value, std::string_view pattern, std::string_view with, bool all) {
  const std::u32string characters = characters_of(value);
  const std::u32string replacement = characters_of(with);
  const Glob glob = glob_of(pattern);
  std::u32string result;
  bool after_match = false;
  for (std::size_t at = 0; at <= characters.size();) {
    const std::u32string_view rest = std::u32string_view(characters).substr(at);
    const auto length = glob.longest(rest);
    // An empty match directly after another match is ignored.
    const bool matched = length && !(*length == 0 && after_match);
    if (matched) result += replacement;
    if (matched && !all) return text_of(result += rest.substr(*length));
    after_match = matched && *length > 0;
    if (after_match) {
      at += *length;
    } else {
      if (!rest.empty()) result += rest.front();
      ++at;
    }
  }
  return text_of(result);
}

}  // namespace adaptdl::image
