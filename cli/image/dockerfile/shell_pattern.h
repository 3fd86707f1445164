// Patterns in shell word substitutions: '*' matches any text, '?' any character, and '\' makes the next character
// literal.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

// without_prefix() removes the match at the start, and without_suffix() the match at the end: the longest match if
// `longest` is set, and otherwise the shortest. All functions throw an Error that quotes the pattern.
std::string without_prefix(std::string_view value, std::string_view pattern, bool longest);
std::string without_suffix(std::string_view value, std::string_view pattern, bool longest);
// Replaces the first match, or all matches. At each position, the longest match is replaced.
std::string replaced(std::string_view value, std::string_view pattern, std::string_view with, bool all);

}  // namespace adaptdl::image
