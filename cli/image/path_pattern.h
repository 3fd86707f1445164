// Patterns of paths, as ignore files and the sources of COPY have them.
//
// Threading: plain functions.
#pragma once

#include <string_view>

#include "image/glob.h"

namespace adaptdl::image {

// With the wildcards of Go's filepath.Match and moby's "**". Throws Error that says why, but does not quote it.
Glob path_pattern(std::string_view pattern);

// Whether it has a character that means something in patterns.
bool is_pattern(std::string_view text);

}  // namespace adaptdl::image
