// The handshake on a new connection between two processes of a job: each end proves that it knows the secret, by an
// HMAC-SHA256 over random numbers from both ends. docs/formats.md, "Handshake", specifies the format.
//
// The connecting end sends its opening, and the accepting end answers with its own. Then the connecting end sends its
// request with a proof. If that proof is valid, the accepting end sends its answer with a proof. Requests and answers
// are protected from modification, but they are not encrypted. If the secret is empty, the proofs are zeros and prove
// nothing.
//
// These classes perform no input or output. Each buffers the received bytes, up to the size of one message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace adaptdl::handshake {

inline constexpr std::uint32_t kVersion = 3;

// The values that must be the same at both ends.
struct Terms {
  std::string secret;
  std::string purpose;  // the connection's purpose; a proof is valid for only one purpose
};

enum class Step {
  kIncomplete,  // more bytes must arrive
  kRefused,     // the connection must be closed; why() returns the reason
  kProved,      // the other end knows the secret
};

using Nonce = std::array<char, 32>;

// The common part of both ends.
class End {
 public:
  // The reason for kRefused. Empty if the other end does not use this protocol.
  const std::string& why() const noexcept { return why_; }

 protected:
  enum class Side { kConnecting, kAccepting };
  // `max_body` is the maximum size of the other end's request or answer in bytes.
  End(Side side, Terms terms, std::size_t max_body);

  std::string opening() const;
  std::string seal(std::string_view body) const;
  // These functions remove the other end's message from the received bytes.
  Step take_opening();
  Step take_body(std::string& body);
  // These functions return the minimum number of bytes that must still arrive to complete the opening or the body.
  std::size_t missing_of_opening() const;
  std::size_t missing_of_body() const;

  std::string received_;

 private:
  std::string proof(Side side, std::string_view body) const;

  const Side side_;
  const Terms terms_;
  const std::size_t max_body_;
  const Nonce own_;
  Nonce other_{};
  std::string why_;
};

class AcceptingEnd : public End {
 public:
  AcceptingEnd(Terms terms, std::size_t max_request) : End(Side::kAccepting, std::move(terms), max_request) {}

  // Processes received bytes. If `reply` is not empty afterwards, it must be sent. REQUIRES that every earlier call
  // returned kIncomplete. Bytes after the request are an error, since the other end must wait for the answer.
  Step take(std::string_view bytes, std::string& reply);
  // After kProved, request() returns the other end's request, and answer() returns the bytes to send to answer it with
  // `body`.
  const std::string& request() const noexcept { return request_; }
  std::string answer(std::string_view body) const { return seal(body); }

 private:
  bool opened_ = false;
  std::string request_;
};

class ConnectingEnd : public End {
 public:
  ConnectingEnd(Terms terms, std::string request, std::size_t max_answer)
      : End(Side::kConnecting, std::move(terms), max_answer), request_(std::move(request)) {}

  // Returns the minimum number of bytes that must still arrive. Reading no more than this leaves the data that follows
  // in the socket.
  std::size_t missing() const;
  // Returns the bytes to send first.
  std::string begin() const { return opening(); }
  // See AcceptingEnd::take.
  Step take(std::string_view bytes, std::string& reply);
  // After kProved, returns the other end's answer.
  const std::string& answer() const noexcept { return answer_; }
  // Returns whether the request was sent. If the connection is closed afterwards, the proof was probably rejected.
  bool asked() const noexcept { return asked_; }

 private:
  const std::string request_;
  std::string answer_;
  bool asked_ = false;
};

// Runs `end` on a connected, non-blocking socket and reads nothing after the answer. `wait` must wait until the socket
// is readable, or return false to give up. Returns kIncomplete if `wait` gave up or the connection was closed.
Step run(ConnectingEnd& end, int fd, const std::function<bool()>& wait);

}  // namespace adaptdl::handshake
