// UTF-8, checked strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace adaptdl {

struct Utf8Character {
  char32_t code;     // a single byte if invalid
  std::size_t size;  // bytes
  bool valid;
};

// Decodes the first character. A byte that does not begin a valid sequence is a character of its own. REQUIRES: not
// empty.
Utf8Character first_utf8_character(std::string_view text);

// Whether `text` is UTF-8, and so can stand in JSON.
bool is_utf8(std::string_view text);

}  // namespace adaptdl
