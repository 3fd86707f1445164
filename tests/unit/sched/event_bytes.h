// Builds TensorBoard event files byte by byte.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/little_endian.h"

namespace adaptdl::sched::tune::testing {

// Computes the CRC bit by bit, unlike the implementation under test.
inline std::uint32_t masked_crc(std::string_view data) {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

inline std::string event_header(std::uint64_t length) {
  const std::string bytes = little_endian(length);
  return bytes + little_endian(masked_crc(bytes));
}

inline std::string event_frame(const std::string& data) {
  return event_header(data.size()) + data + little_endian(masked_crc(data));
}

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value > 0x7f; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Fields of a protobuf message: a number, a float, a double, and bytes or a nested message.
inline std::string number_field(unsigned field, std::uint64_t value) { return varint(field << 3) + varint(value); }
inline std::string float_bits(float value) { return little_endian(std::bit_cast<std::uint32_t>(value)); }
inline std::string double_bits(double value) { return little_endian(std::bit_cast<std::uint64_t>(value)); }
inline std::string float_field(unsigned field, float value) { return varint(field << 3 | 5) + float_bits(value); }
inline std::string double_field(unsigned field, double value) { return varint(field << 3 | 1) + double_bits(value); }
inline std::string bytes_field(unsigned field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}

inline std::string simple_value(const std::string& tag, float value) {
  return bytes_field(1, tag) + float_field(2, value);
}
inline std::string tensor_value(const std::string& tag, const std::string& tensor) {
  return bytes_field(1, tag) + bytes_field(8, tensor);
}

// Returns an event with one summary value.
inline std::string event_of(double wall_time, std::uint64_t step, const std::string& value) {
  return double_field(1, wall_time) + number_field(2, step) + bytes_field(5, bytes_field(1, value));
}

// Returns a record as PyTorch writes it for a scalar.
inline std::string scalar_record(double wall_time, std::uint64_t step, const std::string& tag, float value) {
  return event_frame(event_of(wall_time, step, simple_value(tag, value)));
}

}  // namespace adaptdl::sched::tune::testing
