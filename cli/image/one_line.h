// Texts that came from elsewhere, as they may stand in a message.
//
// Threading: plain functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptdl::image {

// One line of printable UTF-8, with single spaces where there were line breaks, control characters and spaces; at most
// so many bytes of it. What is no UTF-8 is left out.
std::string one_line(std::string_view text, std::size_t most = 2000);

}  // namespace adaptdl::image
