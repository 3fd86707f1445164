// Base64, as credentials and certificates are written in files of text.
//
// Threading: plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace adaptdl {

// Standard base64 with its padding, in which white space does not count; null if it is none.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace adaptdl
