// The patterns in substitutions of shell words: '*' is any text, '?' any character, '\' makes them plain.
//
// Threading: plain functions.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::image {

// Throw Error that quotes the pattern.
std::string without_prefix(std::string_view value, std::string_view pattern, bool longest);
std::string without_suffix(std::string_view value, std::string_view pattern, bool longest);
// The first match, or all of them, the leftmost and of those the longest.
std::string replaced(std::string_view value, std::string_view pattern, std::string_view with, bool all);

}  // namespace adaptdl::image
