// "Did you mean": the closest of some words to one that was mistyped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::cli {

// How many insertions, deletions, replacements and swaps of neighbours turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` was most likely meant to be, if one is close: it begins with `word`, or differs by at most
// a third of its letters. The first one of several that are as close.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace adaptdl::cli
