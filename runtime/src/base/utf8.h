// A strict UTF-8 decoder: overlong forms, surrogates and code points above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <string_view>

namespace adaptdl {

struct Utf8Character {
  char32_t code;     // the byte's value if invalid
  std::size_t size;  // bytes
  bool valid;
};

// Decodes the first character. A byte that does not begin a valid sequence is an invalid character. REQUIRES that
// `text` is not empty.
Utf8Character first_utf8_character(std::string_view text);

// Returns whether `text` is valid UTF-8, as JSON requires.
bool is_utf8(std::string_view text);

}  // namespace adaptdl
