#include "base/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace adaptdl {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::size_t kNoLetter = 64;
// The value of each byte as a letter.
constexpr auto kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoLetter);
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  std::size_t letters = 0, padding = 0;
  for (const char c : text) {
    if (is_space(c)) continue;
    const std::size_t value = c == '=' ? 0 : kValues[static_cast<unsigned char>(c)];
    if (value == kNoLetter || (padding > 0 && c != '=')) return {};
    padding += c == '=';
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (++letters % 4 != 0) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xff);
  }
  if (letters % 4 != 0 || padding > 2) return {};
  for (; padding > 0; --padding) bytes.pop_back();
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += at + i <= bytes.size() ? kLetters[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace adaptdl
