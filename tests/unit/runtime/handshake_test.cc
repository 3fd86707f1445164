// Tests how two ends prove to each other that they share a secret, and what is sent to an end that does not have it.
#include "protocol/handshake.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/libcrypto.h"
#include "base/little_endian.h"
#include "golden.h"

namespace handshake_test {

using namespace adaptdl;
using namespace adaptdl::handshake;

namespace {

constexpr std::size_t kOpening = 44, kSeal = 36;
const Terms kTerms{"the secret", "tests"};

// Runs the handshake of two ends in pieces of `piece` bytes.
struct Talk {
  Talk(const Terms& connecting, const Terms& accepting, std::size_t piece = 1000)
      : asks(connecting, "may I?", 100), answers(accepting, 100) {
    std::string to_answering = asks.begin(), to_asking;
    while (!to_answering.empty() || !to_asking.empty()) {
      std::string reply;
      if (!to_answering.empty()) {
        to_accepting += to_answering.substr(0, piece);
        accepted = answers.take(to_answering.substr(0, piece), reply);
        to_answering.erase(0, piece);
        to_asking += reply;
        if (accepted == Step::kProved) to_asking += answers.answer("you may") + "more";
        if (accepted == Step::kRefused) to_answering.clear();
      } else {
        const std::string part = to_asking.substr(0, std::min(piece, asks.missing()));
        to_connecting += part;
        connected = asks.take(part, reply);
        to_asking.erase(0, part.size());
        to_answering += reply;
        if (connected != Step::kIncomplete) rest = std::exchange(to_asking, "");
      }
    }
  }
  ConnectingEnd asks;
  AcceptingEnd answers;
  Step connected = Step::kIncomplete, accepted = Step::kIncomplete;
  // What the accepting end and the connecting end received, and what follows the answer.
  std::string to_accepting, to_connecting, rest;
};

// Computes a proof as docs/formats.md describes it.
std::string proof(const std::string& side, const std::string& purpose, const std::string& nonces,
                  const std::string& body) {
  const std::string message = side + '\0' + purpose + '\0' + nonces + body;
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  libcrypto().HMAC(libcrypto().EVP_sha256(), kTerms.secret.data(), static_cast<int>(kTerms.secret.size()),
                   reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(), &size);
  return {digest.begin(), digest.end()};
}

}  // namespace

TEST_CASE("peers with the same secret complete the handshake, however the data is fragmented") {
  for (const Terms& terms : {kTerms, Terms{"", "tests"}}) {
    for (const std::size_t piece : {1, 7, 43, 44, 45, 1000}) {
      CAPTURE(piece);
      const Talk talk(terms, terms, piece);
      CHECK(talk.accepted == Step::kProved);
      CHECK(talk.answers.request() == "may I?");
      CHECK(talk.connected == Step::kProved);
      CHECK(talk.asks.answer() == "you may");
      CHECK(talk.rest == "more");
    }
  }
}

TEST_CASE("the encoding of the handshake matches the specification") {
  const Talk talk(kTerms, kTerms);
  CHECK(talk.to_accepting.substr(0, 12) == std::string("adaptdl\n\x03\0\0\0", 12));
  CHECK(talk.to_connecting.substr(0, 12) == talk.to_accepting.substr(0, 12));
  const std::string nonces = talk.to_accepting.substr(12, 32) + talk.to_connecting.substr(12, 32);
  CHECK(talk.to_accepting.substr(kOpening) ==
        proof("connecting", "tests", nonces, "may I?") + std::string("\x06\0\0\0", 4) + "may I?");
  CHECK(talk.to_connecting.substr(kOpening, kSeal + 7) ==
        proof("accepting", "tests", nonces, "you may") + std::string("\x07\0\0\0", 4) + "you may");
  CHECK(nonces != Talk(kTerms, kTerms).to_accepting.substr(12, 32) + talk.to_connecting.substr(12, 32));
}

TEST_CASE("a peer with another secret or purpose is rejected and receives only an opening") {
  for (const Terms& other : {Terms{"another secret", "tests"}, Terms{"", "tests"}, Terms{"the secret", "others"}}) {
    const Talk talk(other, kTerms);
    CHECK(talk.accepted == Step::kRefused);
    CHECK_GOLDEN(talk.answers.why());
    CHECK(talk.to_connecting.size() == kOpening);
  }
}

TEST_CASE("an accepting peer without the secret is rejected") {
  AcceptingEnd knows(kTerms, 100), does_not({"", "tests"}, 100);
  ConnectingEnd end(kTerms, "may I?", 100);
  std::string opening, request, ignored;
  does_not.take(end.begin(), opening);
  CHECK(end.take(opening, request) == Step::kIncomplete);
  SUBCASE("a proof of zeros") { CHECK(end.take(does_not.answer("you may"), ignored) == Step::kRefused); }
  SUBCASE("the connecting peer's own proof") { CHECK(end.take(request, ignored) == Step::kRefused); }
  SUBCASE("a proof from another connection") {
    CHECK(knows.take(ConnectingEnd(kTerms, "", 0).begin(), ignored) == Step::kIncomplete);
    CHECK(end.take(knows.answer("you may"), ignored) == Step::kRefused);
  }
  CHECK_GOLDEN(end.why());
  CHECK(end.answer() != "you may");
}

TEST_CASE("a modified or replayed request is rejected") {
  const Talk talk(kTerms, kTerms);
  for (std::size_t at = kOpening; at < talk.to_accepting.size(); ++at) {
    ConnectingEnd asks(kTerms, "may I?", 100);
    AcceptingEnd answers(kTerms, 100);
    std::string opening, request, reply;
    answers.take(asks.begin(), opening);
    asks.take(opening, request);
    request[at - kOpening] = static_cast<char>(request[at - kOpening] ^ 1);
    CHECK(answers.take(request, reply) != Step::kProved);
  }
  AcceptingEnd replayed(kTerms, 100);
  std::string reply;
  CHECK(replayed.take(talk.to_accepting, reply) == Step::kRefused);
}

TEST_CASE("a foreign protocol is rejected without a reply, and another protocol version with an opening") {
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n"), std::string(1, '\0'), std::string("adaptdl\r")}) {
    AcceptingEnd end(kTerms, 100);
    std::string reply;
    CHECK(end.take(words, reply) == Step::kRefused);
    CHECK(reply.empty());
    CHECK(end.why().empty());
  }
  AcceptingEnd end(kTerms, 100);
  std::string reply;
  CHECK(end.take("adaptdl\n" + little_endian(std::uint32_t{9}), reply) == Step::kRefused);
  CHECK(reply.size() == kOpening);
  CHECK_GOLDEN(end.why());
}

TEST_CASE("a message that claims to exceed the size limit is rejected") {
  AcceptingEnd end(kTerms, 10);
  std::string reply;
  CHECK(end.take(ConnectingEnd(kTerms, "", 0).begin(), reply) == Step::kIncomplete);
  CHECK(end.take(std::string(32, '\0') + little_endian(std::uint32_t{11}), reply) == Step::kRefused);
}

}  // namespace handshake_test
