// Helpers for text: trimming, splitting, and the case of ASCII letters.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl {

inline constexpr std::string_view kSpaces = " \t\n\v\f\r";

inline bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

inline std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

constexpr bool is_digit(int c) { return c >= '0' && c <= '9'; }

// lower() and upper() convert only ASCII letters.
inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}
inline std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

// Splits at every `separator`, into at least one part.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Returns the words between spaces.
inline std::vector<std::string> split_spaces(std::string_view text) {
  std::vector<std::string> words;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    words.emplace_back(text.substr(0, text.find_first_of(kSpaces)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

}  // namespace adaptdl
