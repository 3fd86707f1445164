// Encodes and decodes the unsigned integers in messages, which are little-endian on every machine.
#pragma once

#include <cstddef>
#include <string>

namespace adaptdl {

template <typename Integer>
void put_little_endian(char* to, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<char>(value >> (8 * i));
}

template <typename Integer>
std::string little_endian(Integer value) {
  std::string bytes(sizeof value, '\0');
  put_little_endian(bytes.data(), value);
  return bytes;
}

template <typename Integer>
Integer get_little_endian(const char* from) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<Integer>(value | static_cast<Integer>(static_cast<unsigned char>(from[i])) << (8 * i));
  return value;
}

}  // namespace adaptdl
