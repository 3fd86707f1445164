// Messages between a RendezvousStore and its server. A message is a length (32 bits, little-endian) and a body of that
// many bytes.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace adaptdl {

inline constexpr std::uint32_t kMaxMessage = 16 << 20;  // bytes

// Returns the message with this body.
std::string to_message(const std::string& body);

// Removes the first message from `received` and returns its body. Returns nullopt if the message is not complete.
// Throws Error if its body is longer than kMaxMessage.
std::optional<std::string> take_message(std::string& received);

// The maximum number of bytes to receive at a time.
inline constexpr std::size_t kReadSize = 4096;

// Returns whether the last call on a non-blocking socket failed only because it would have blocked or was interrupted.
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace adaptdl
