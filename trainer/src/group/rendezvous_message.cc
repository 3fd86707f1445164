#include "group/rendezvous_message.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "base/little_endian.h"

namespace adaptdl {

namespace {

constexpr std::size_t kLengthSize = 4;  // bytes

}  // namespace

std::string to_message(const std::string& body) {
  return little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

std::optional<std::string> take_message(std::string& received) {
  if (received.size() < kLengthSize) return {};
  const auto length = get_little_endian<std::uint32_t>(received.data());
  if (length > kMaxMessage)
    throw Error(fmt::format("message of {} bytes is too long: at most {} bytes", length, kMaxMessage));
  if (received.size() < kLengthSize + length) return {};
  std::string body = received.substr(kLengthSize, length);
  received.erase(0, kLengthSize + length);
  return body;
}

}  // namespace adaptdl
