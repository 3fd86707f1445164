// Checks that input (files and options) is UTF-8 text.
#pragma once

#include <string>
#include <string_view>

namespace adaptdl::kube {

// Throws an Error that names the file if `text` is not valid UTF-8 or contains a NUL, as UTF-16 text does.
void check_text(std::string_view text, const std::string& name);

}  // namespace adaptdl::kube
