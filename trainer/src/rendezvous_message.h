// The messages between a RendezvousStore and its server: a length (32 bits, little-endian), then a body of so many
// bytes.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace adaptdl {

inline constexpr std::uint32_t kMaxMessage = 16 << 20;  // bytes

// A message of this body.
std::string to_message(const std::string& body);

// Takes the first message out of `received`, or returns none if it is not complete. Throws Error if it is longer than
// kMaxMessage.
std::optional<std::string> take_message(std::string& received);

// What recv(2) may return at a time, in bytes.
inline constexpr std::size_t kReadSize = 4096;

// Whether the last call on a non-blocking socket failed only because it would have had to wait.
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace adaptdl
