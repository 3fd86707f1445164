// The messages between replicas that have proved that they belong to the same job: a replica's request, rank 0's
// answer, and frames (docs/formats.md, "Collective wire format").
//
// No length field is trusted for an allocation: lengths are checked first, and buffers grow with the bytes received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/collective.h"

namespace adaptdl::collective::wire {

inline constexpr std::size_t kMaxJob = 1024;     // bytes in a job's name
inline constexpr std::size_t kMaxText = 4096;    // bytes in an error's text
inline constexpr std::size_t kMaxPurpose = 255;  // bytes in a call's purpose

// A replica's request in the handshake.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t max_message = 0;
  std::string job;
};
inline constexpr std::size_t kMaxHello = 16 + kMaxJob;  // bytes

// Rank 0's answer: whether the replica is accepted, and the reason if it is refused.
struct Answer {
  bool accepted = false;
  std::string text;
};
inline constexpr std::size_t kMaxAnswer = 4 + kMaxText;  // bytes

std::string encode(const Hello& hello);
std::string encode(const Answer& answer);
// These functions return nullopt if the bytes are malformed.
std::optional<Hello> parse_hello(std::string_view bytes);
std::optional<Answer> parse_answer(std::string_view bytes);

enum class Kind : std::uint8_t { kAllreduce = 1, kBroadcast = 2, kAllgather = 3, kTeardown = 4 };

enum class Type : std::uint8_t {
  kValue = 1,     // a replica's value, or rank 0's result
  kFailed = 2,    // this call fails on all replicas, but later calls may succeed; the payload is the reason
  kStart = 3,     // from rank 0: all replicas are connected
  kBroken = 4,    // from rank 0: every pending and later call fails; the payload is the reason
  kMismatch = 5,  // same as kBroken, but because the replicas did not make the same calls
};

struct Frame {
  Type type = Type::kValue;
  Kind kind = Kind::kAllreduce;
  std::uint64_t sequence = 0;  // number of the call, counted from 1; 0 in kStart, kBroken and kMismatch
  Bytes payload;
  std::string purpose;  // of a replica's call; empty in frames from rank 0
};

// Encodes a frame without its payload, which has `payload_size` bytes.
std::string encode_head(const Frame& frame, std::uint64_t payload_size);

// Formats a call as "allreduce #15".
std::string call_name(Kind kind, std::uint64_t sequence);
std::string_view kind_name(Kind kind);
// Formats a call as "allreduce (step boundary)".
std::string call_text(Kind kind, std::string_view purpose);

// Splits a stream of bytes into frames.
class FrameReader {
 public:
  explicit FrameReader(std::uint64_t max_payload) : max_payload_(max_payload) {}
  // Consumes `bytes` up to the end of a frame and returns the frame, or consumes them all and returns nullopt. Throws
  // CollectiveError on an invalid or oversized frame; the reader cannot be used afterwards.
  std::optional<Frame> take(std::string_view& bytes);

 private:
  void on_header();

  std::uint64_t max_payload_;
  std::string header_;
  std::size_t purpose_size_ = 0;
  std::uint64_t payload_size_ = 0;
  Frame frame_;
};

// pack() combines an allgather's values into one, and unpack() separates them again. unpack() throws CollectiveError
// unless there are exactly `count` values.
Bytes pack(const std::vector<Bytes>& values);
std::vector<Bytes> unpack(const Bytes& packed, std::size_t count);
// Returns the maximum packed size of `count` values with `max_message` bytes in total.
std::uint64_t packed_bound(std::uint64_t max_message, std::size_t count);

}  // namespace adaptdl::collective::wire
