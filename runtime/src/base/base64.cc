#include "base/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/text_parts.h"

namespace adaptdl {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::size_t kNoLetter = 64;
// The value of each byte as a letter of base64, or kNoLetter.
constexpr auto kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoLetter);
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  char* out = bytes.data();
  const auto value_of = [&](std::size_t at) { return kValues[static_cast<unsigned char>(text[at])]; };
  const auto put = [&](std::uint32_t bits) {
    for (const int shift : {16, 8, 0}) *out++ = static_cast<char>(bits >> shift & 0xff);
  };
  std::uint32_t bits = 0;
  std::size_t at = 0, letters = 0, padding = 0;
  while (at < text.size()) {
    // Most texts consist of groups of four letters.
    for (; letters % 4 == 0 && padding == 0 && text.size() - at >= 4; at += 4) {
      const std::uint32_t a = value_of(at), b = value_of(at + 1), c = value_of(at + 2), d = value_of(at + 3);
      if ((a | b | c | d) >= kNoLetter) break;
      put(a << 18 | b << 12 | c << 6 | d);
    }
    if (at == text.size()) break;
    const char c = text[at];
    const std::uint32_t value = c == '=' ? 0 : value_of(at);
    ++at;
    if (is_space(c)) continue;
    if (value == kNoLetter || (padding > 0 && c != '=')) return {};
    padding += c == '=';
    bits = bits << 6 | value;
    if (++letters % 4 == 0) put(bits);
  }
  if (letters % 4 != 0 || padding > 2) return {};
  bytes.resize(static_cast<std::size_t>(out - bytes.data()) - padding);
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  char* out = text.data();
  const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at])); };
  const auto put = [&](std::uint32_t bits, std::initializer_list<int> shifts) {
    for (const int shift : shifts) *out++ = kLetters[bits >> shift & 63];
  };
  std::size_t at = 0;
  for (; at + 3 <= bytes.size(); at += 3) put(byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2), {18, 12, 6, 0});
  if (bytes.size() - at == 1) put(byte(at) << 16, {18, 12});
  if (bytes.size() - at == 2) put(byte(at) << 16 | byte(at + 1) << 8, {18, 12, 6});
  return text;
}

}  // namespace adaptdl
