// Completes command lines for the scripts in completions/.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// Returns the candidates for the last of `words`, which are the words after "adaptdl"; the last word may be incomplete
// or empty. Each candidate is "WORD\tDESCRIPTION", and WORD begins with the typed word. Instead of candidates, a single
// line may tell the shell to find the candidates itself: ":dir" and ":file" for paths, ":program" for a command, and
// ":rest N" if words[N] is a program whose own completion applies.
std::vector<std::string> complete(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
