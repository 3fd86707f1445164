// Builds SPDY frames as a server sends them, valid and invalid.
#pragma once

#include <cstdint>
#include <string>

namespace testing::spdy {

inline std::string number(std::uint32_t value, int bytes) {
  std::string text;
  while (bytes-- > 0) text += static_cast<char>(value >> 8 * bytes);
  return text;
}

inline std::string data(std::uint32_t id, const std::string& bytes, bool ends = false) {
  return number(id, 4) + number(ends ? 1 : 0, 1) + number(static_cast<std::uint32_t>(bytes.size()), 3) + bytes;
}

inline std::string control(unsigned type, const std::string& payload) {
  return number(0x8003, 2) + number(type, 2) + number(static_cast<std::uint32_t>(payload.size()), 4) + payload;
}

inline std::string reset(std::uint32_t id) { return control(3, number(id, 4) + number(5, 4)); }
inline std::string ping(std::uint32_t id) { return control(6, number(id, 4)); }
inline std::string go_away() { return control(7, number(7, 4) + number(0, 4)); }

}  // namespace testing::spdy
