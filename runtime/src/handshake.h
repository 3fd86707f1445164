// How the two ends of a new connection between processes of one job recognize each other: each proves that it has the
// secret, by an HMAC-SHA256 over random numbers of both ends. Format: docs/formats.md, "Handshake".
//
// The connecting end sends an opening; the accepting end answers with its own; the connecting end sends its request
// with a proof, and the accepting end, if it is right, its answer with a proof. Requests and answers are protected from
// changes, but they are not encrypted. With an empty secret nothing is proved.
//
// These classes do no input or output. Memory: each holds what it is sent, up to the size of one message.
// Threading: each object is used by one thread at a time.
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

// What both ends have to agree on.
struct Terms {
  std::string secret;
  std::string purpose;  // of the connection: a proof for one purpose is of no use for another
};

enum class Step {
  kIncomplete,  // more has to come
  kRefused,     // the connection is of no use; why() says why
  kProved,      // the other end has the secret
};

using Nonce = std::array<char, 32>;

// What both ends have in common.
class End {
 public:
  // Of kRefused. Empty if the other end does not speak this protocol.
  const std::string& why() const noexcept { return why_; }

 protected:
  enum class Side { kConnecting, kAccepting };
  // `max_body`: bytes of the other end's request or answer.
  End(Side side, Terms terms, std::size_t max_body);

  std::string opening() const;
  std::string seal(std::string_view body) const;
  // Take the other end's message out of what was received.
  Step take_opening();
  Step take_body(std::string& body);
  // Bytes that are missing from such a message, at least.
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

  // Processes received bytes. If `reply` is not empty afterwards, send it. REQUIRES that every earlier call returned
  // kIncomplete. Bytes after the request are an error, since the other end must wait for the answer.
  Step take(std::string_view bytes, std::string& reply);
  // After kProved: what the other end asks, and what to send as the answer.
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

  // How many bytes have to come at least: whoever reads no more leaves what comes after the answer in the socket.
  std::size_t missing() const;
  // What to send first.
  std::string begin() const { return opening(); }
  // As that of AcceptingEnd.
  Step take(std::string_view bytes, std::string& reply);
  // After kProved: what the other end answers.
  const std::string& answer() const noexcept { return answer_; }
  // Whether the request was sent. If the other end then closes the connection, it may not have accepted the proof.
  bool asked() const noexcept { return asked_; }

 private:
  const std::string request_;
  std::string answer_;
  bool asked_ = false;
};

// Runs `end` on a connected socket that does not block, and reads nothing beyond the answer. `wait` waits until it can
// be read, or gives up and returns false. Returns kIncomplete if it gave up, or the connection was closed.
Step run(ConnectingEnd& end, int fd, const std::function<bool()>& wait);

}  // namespace adaptdl::handshake
