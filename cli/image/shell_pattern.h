// Patterns in the substitutions of shell words: '*' is any text, '?' any character, and '\' makes the next one literal.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

// Removes the shortest or longest match at the start or the end. All functions throw Error that quotes the pattern.
std::string without_prefix(std::string_view value, std::string_view pattern, bool longest);
std::string without_suffix(std::string_view value, std::string_view pattern, bool longest);
// Replaces the first match, or all of them; of several at one place, the longest.
std::string replaced(std::string_view value, std::string_view pattern, std::string_view with, bool all);

}  // namespace adaptdl::image
