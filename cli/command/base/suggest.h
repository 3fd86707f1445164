// Suggests the word that a user may have meant when they mistyped one ("did you mean").
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::cli {

// Returns the minimum number of insertions, deletions, replacements and swaps of adjacent characters that turn `a` into
// `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns the candidate that `word` most likely means, or nullopt if none is close. A candidate is close if it begins
// with `word`, or if its edit distance from `word` is at most 1 or at most a third of the candidate's length. Of
// equally close candidates, returns the first.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace adaptdl::cli
