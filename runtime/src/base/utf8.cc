#include "base/utf8.h"

#include <array>

namespace adaptdl {

Utf8Character first_utf8_character(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Utf8Character invalid{byte(0), 1, false};
  if (byte(0) < 0x80) return {byte(0), 1, true};
  const std::size_t size = byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : byte(0) < 0xF5 ? 4 : 0;
  if (size == 0 || size > text.size()) return invalid;
  char32_t code = byte(0) & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return invalid;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kMin{0, 0, 0x80, 0x800, 0x10000};  // smaller values have a shorter encoding
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kMin[size] || surrogate || code > 0x10FFFF ? invalid : Utf8Character{code, size, true};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (!character.valid) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

}  // namespace adaptdl
