// Texts that came from elsewhere, as they may stand in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// One line of printable UTF-8, with single spaces where there were line breaks, control characters and spaces; at most
// so many bytes of it.
std::string one_line(std::string_view text, std::size_t most = 2000);

// Throws Error, which names the file, if this is no text in UTF-8, or has a NUL, as other encodings do.
void check_text(std::string_view text, const std::string& name);
// What is to be said of a scalar that is none although the file is: yaml-cpp makes a single byte of some escapes.
inline constexpr std::string_view kNoText =
    "an escape here (as \\N or \\_) is not supported: write the character itself";

}  // namespace adaptdl::kube
