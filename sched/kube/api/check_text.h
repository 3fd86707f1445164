// Checks that input (files and options) is UTF-8 text.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Throws an Error that names the file if `text` is not valid UTF-8 or contains a NUL, as UTF-16 text does.
void check_text(std::string_view text, const std::string& name);
// The error message for a scalar that is not valid UTF-8 although its file is: yaml-cpp decodes some escapes to a
// single byte, which is not valid UTF-8.
inline constexpr std::string_view kNoText = "unsupported escape (such as \\N or \\_); write the character itself";

}  // namespace adaptdl::kube
