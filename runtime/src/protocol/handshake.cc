#include "protocol/handshake.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/libcrypto.h"
#include "base/little_endian.h"
#include "protocol/secret.h"

namespace adaptdl::handshake {
namespace {

constexpr std::string_view kMagic = "adaptdl\n";
constexpr std::size_t kOpeningSize = kMagic.size() + 4 + sizeof(Nonce);  // magic, version, nonce
constexpr std::size_t kProofSize = 32;
constexpr std::size_t kSealSize = kProofSize + 4;  // proof, length of the body

Nonce random_nonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw Error(fmt::format("cannot get random numbers from the system: {}", std::strerror(errno)));
  return nonce;
}

std::string hmac_sha256(const std::string& key, const std::string& message) {
  std::array<unsigned char, kProofSize> digest{};
  unsigned size = 0;
  if (libcrypto().HMAC(libcrypto().EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(),
                       &size) == nullptr ||
      size != digest.size())
    throw Error("HMAC-SHA256 failed");
  return {digest.begin(), digest.end()};
}

}  // namespace

End::End(Side side, Terms terms, std::size_t max_body)
    : side_(side), terms_(std::move(terms)), max_body_(max_body), own_(random_nonce()) {}

std::string End::opening() const {
  return fmt::format("{}{}{}", kMagic, little_endian(kVersion), std::string_view(own_.data(), own_.size()));
}

std::string End::seal(std::string_view body) const {
  return fmt::format("{}{}{}", proof(side_, body), little_endian(static_cast<std::uint32_t>(body.size())), body);
}

Step End::take_opening() {
  const std::size_t known = std::min(received_.size(), kMagic.size());
  if (received_.compare(0, known, kMagic, 0, known) != 0) return Step::kRefused;
  if (received_.size() < kMagic.size() + 4) return Step::kIncomplete;
  const auto version = get_little_endian<std::uint32_t>(&received_[kMagic.size()]);
  if (version != kVersion) {
    why_ = fmt::format("it uses protocol version {}, but this replica uses version {}", version, kVersion);
    return Step::kRefused;
  }
  if (received_.size() < kOpeningSize) return Step::kIncomplete;
  received_.copy(other_.data(), other_.size(), kMagic.size() + 4);
  received_.erase(0, kOpeningSize);
  return Step::kProved;
}

Step End::take_body(std::string& body) {
  if (received_.size() < kSealSize) return Step::kIncomplete;
  const auto size = get_little_endian<std::uint32_t>(&received_[kProofSize]);
  if (size > max_body_) return Step::kRefused;
  if (received_.size() < kSealSize + size) return Step::kIncomplete;
  const std::string_view content = std::string_view(received_).substr(kSealSize, size);
  const Side other = side_ == Side::kConnecting ? Side::kAccepting : Side::kConnecting;
  if (!is_same_secret(std::string_view(received_).substr(0, kProofSize), proof(other, content))) {
    why_ = "it does not have this job's secret";
    return Step::kRefused;
  }
  body = content;
  received_.erase(0, kSealSize + size);
  return Step::kProved;
}

// Returns the HMAC-SHA256, with the secret as the key, of: side, 0, purpose, 0, the nonces of the connecting and the
// accepting end, body.
std::string End::proof(Side side, std::string_view body) const {
  if (terms_.secret.empty()) return std::string(kProofSize, '\0');
  std::string message = side == Side::kConnecting ? "connecting" : "accepting";
  message.append(1, '\0').append(terms_.purpose).append(1, '\0');
  const bool connecting = side_ == Side::kConnecting;
  for (const Nonce* nonce : {connecting ? &own_ : &other_, connecting ? &other_ : &own_})
    message.append(nonce->data(), nonce->size());
  return hmac_sha256(terms_.secret, message.append(body));
}

Step AcceptingEnd::take(std::string_view bytes, std::string& reply) {
  received_.append(bytes);
  if (!opened_) {
    const Step step = take_opening();
    // An end with another version also gets a reply, from which it learns this end's version.
    if (step == Step::kProved || !why().empty()) reply = opening();
    if (step != Step::kProved) return step;
    opened_ = true;
  }
  const Step step = take_body(request_);
  return step == Step::kProved && !received_.empty() ? Step::kRefused : step;
}

std::size_t End::missing_of_opening() const { return kOpeningSize - received_.size(); }

std::size_t End::missing_of_body() const {
  if (received_.size() < kSealSize) return kSealSize - received_.size();
  return kSealSize + get_little_endian<std::uint32_t>(&received_[kProofSize]) - received_.size();
}

std::size_t ConnectingEnd::missing() const { return asked_ ? missing_of_body() : missing_of_opening(); }

Step ConnectingEnd::take(std::string_view bytes, std::string& reply) {
  received_.append(bytes);
  if (!asked_) {
    if (const Step step = take_opening(); step != Step::kProved) return step;
    // The other end cannot answer before it has received the request.
    if (!received_.empty()) return Step::kRefused;
    reply = seal(request_);
    asked_ = true;
    return Step::kIncomplete;
  }
  return take_body(answer_);
}

Step run(ConnectingEnd& end, int fd, const std::function<bool()>& wait) {
  std::string to_send = end.begin();
  for (;;) {
    // The message fits into the empty send buffer of a new connection.
    if (::send(fd, to_send.data(), to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(to_send.size()))
      return Step::kIncomplete;
    to_send.clear();
    while (to_send.empty()) {
      char buffer[4096];
      const ssize_t size = ::recv(fd, buffer, std::min(sizeof buffer, end.missing()), MSG_DONTWAIT);
      if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        if (!wait()) return Step::kIncomplete;
        continue;
      }
      if (size <= 0) return Step::kIncomplete;
      const Step step = end.take({buffer, static_cast<std::size_t>(size)}, to_send);
      if (step != Step::kIncomplete) return step;
    }
  }
}

}  // namespace adaptdl::handshake
