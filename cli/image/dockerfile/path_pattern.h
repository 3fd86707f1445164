// Path patterns, as in ignore files and COPY sources.
#pragma once

#include <string_view>

#include "image/base/glob.h"

namespace adaptdl::image {

// Parses the wildcards of Go's filepath.Match and Moby's "**". Throws an Error that states the reason, but not the
// pattern.
Glob path_pattern(std::string_view pattern);

// Returns whether the text contains a character that is special in patterns.
bool is_pattern(std::string_view text);

}  // namespace adaptdl::image
