#include "rendezvous_message.h"

#include <fmt/format.h>

#include "adaptdl/error.h"

namespace adaptdl::torch {

namespace {

constexpr std::size_t kLengthSize = 4;  // bytes

}  // namespace

std::string to_message(const std::string& body) {
  std::string message;
  for (std::size_t i = 0; i < kLengthSize; ++i) message += static_cast<char>(body.size() >> (8 * i) & 0xff);
  return message + body;
}

std::optional<std::string> take_message(std::string& received, std::uint32_t max) {
  if (received.size() < kLengthSize) return {};
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthSize; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(received[i])) << (8 * i);
  if (length > max) throw Error(fmt::format("message of {} bytes is too long: at most {} bytes", length, max));
  if (received.size() < kLengthSize + length) return {};
  std::string body = received.substr(kLengthSize, length);
  received.erase(0, kLengthSize + length);
  return body;
}

}  // namespace adaptdl::torch
