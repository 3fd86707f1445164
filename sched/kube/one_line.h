// Texts that came from elsewhere, as they may stand in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// One line of printable UTF-8, with single spaces where there were line breaks, control characters and spaces; at most
// so many bytes of it.
std::string one_line(std::string_view text, std::size_t most = 2000);

}  // namespace adaptdl::kube
