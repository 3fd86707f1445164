// Completes command lines for the scripts in completions/.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// Returns the candidates for the last of `words`, which are those after "adaptdl", with the last one as far as it is
// typed. Each candidate is "WORD\tDESCRIPTION" and begins with what is typed. Instead of candidates, one line may tell
// the shell to find them itself: ":dir" and ":file" for paths, ":program" for a command, and ":rest N" if words[N] is a
// program whose own completion applies.
std::vector<std::string> complete(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
