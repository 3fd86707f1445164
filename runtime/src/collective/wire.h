// What the replicas say to each other once they have proved that they belong to one job: what a replica asks for, what
// rank 0 answers, and frames (docs/formats.md, "Collective wire format").
//
// Nothing here allocates by what a length field claims: lengths are checked first, and buffers grow with what has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/collective.h"

namespace adaptdl::collective::wire {

inline constexpr std::size_t kMaxJob = 1024;   // bytes of a job's name
inline constexpr std::size_t kMaxText = 4096;  // bytes of an error's text
inline constexpr std::size_t kMaxPurpose = 255;  // bytes of what a call is for

// A replica's request, in the handshake.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t max_message = 0;
  std::string job;
};
inline constexpr std::size_t kMaxHello = 16 + kMaxJob;  // bytes

// What rank 0 answers: accepted, or why not.
struct Answer {
  bool accepted = false;
  std::string text;
};
inline constexpr std::size_t kMaxAnswer = 4 + kMaxText;  // bytes

std::string encode(const Hello& hello);
std::string encode(const Answer& answer);
// None if that is malformed.
std::optional<Hello> parse_hello(std::string_view bytes);
std::optional<Answer> parse_answer(std::string_view bytes);

enum class Kind : std::uint8_t { kAllreduce = 1, kBroadcast = 2, kAllgather = 3, kTeardown = 4 };

enum class Type : std::uint8_t {
  kValue = 1,     // a replica's value, or rank 0's result
  kFailed = 2,    // this call fails on all replicas, the next ones need not; the payload says why
  kStart = 3,     // from rank 0: all replicas are connected
  kBroken = 4,    // from rank 0: every pending and later call fails; the payload says why
  kMismatch = 5,  // the same, because the replicas did not make the same calls
};

struct Frame {
  Type type = Type::kValue;
  Kind kind = Kind::kAllreduce;
  std::uint64_t sequence = 0;  // of the call, from 1; 0 in kStart, kBroken and kMismatch
  Bytes payload;
  std::string purpose;  // of a replica's call
};

// All of a frame but the payload, whose size is given.
std::string encode_head(const Frame& frame, std::uint64_t payload_size);

// "allreduce #15"
std::string call_name(Kind kind, std::uint64_t sequence);
std::string_view kind_name(Kind kind);
// "allreduce (step boundary)"
std::string call_text(Kind kind, std::string_view purpose);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  explicit FrameReader(std::uint64_t max_payload) : max_payload_(max_payload) {}
  // Consumes `bytes` up to the end of a frame and gives it, or all of them and gives none. Throws CollectiveError on
  // what cannot be a frame, or one over the bound; the reader is of no use after it.
  std::optional<Frame> take(std::string_view& bytes);

 private:
  void on_header();

  std::uint64_t max_payload_;
  std::string header_;
  std::size_t purpose_size_ = 0;
  std::uint64_t payload_size_ = 0;
  Frame frame_;
};

// The values of an allgather as one, and back. unpack throws CollectiveError on anything but `count` values.
Bytes pack(const std::vector<Bytes>& values);
std::vector<Bytes> unpack(const Bytes& packed, std::size_t count);
// The largest packed size of `count` values of `max_message` bytes in sum.
std::uint64_t packed_bound(std::uint64_t max_message, std::size_t count);

}  // namespace adaptdl::collective::wire
