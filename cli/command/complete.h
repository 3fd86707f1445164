// Completion of command lines, for the scripts in completions/.
#pragma once

#include <string>
#include <vector>

namespace adaptdl::cli {

// What may stand in place of the last of `words` (those after "adaptdl", the last as far as it is typed), one candidate
// each: "WORD\tDESCRIPTION", only such as begin with what is typed; or one line that tells the shell to find them
// itself:
// ":dir" and ":file" for paths, ":program" for a command, and ":rest N" where words[N] is a program and its own
// completion is due.
std::vector<std::string> complete(const std::vector<std::string>& words);

}  // namespace adaptdl::cli
