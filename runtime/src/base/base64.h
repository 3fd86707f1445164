// Base64, the encoding of credentials and certificates in text files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace adaptdl {

// Decodes standard base64 with padding, ignoring white space. Returns nullopt if `text` is not valid.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace adaptdl
