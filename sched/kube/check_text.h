// The check that files and options from outside are text.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Throws Error, which names the file, if this is no text in UTF-8, or has a NUL, as other encodings do.
void check_text(std::string_view text, const std::string& name);
// What is to be said of a scalar that is none although the file is: yaml-cpp makes a single byte of some escapes.
inline constexpr std::string_view kNoText =
    "an escape here (as \\N or \\_) is not supported: write the character itself";

}  // namespace adaptdl::kube
