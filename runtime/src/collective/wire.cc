#include "collective/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace adaptdl::collective::wire {
namespace {

constexpr std::string_view kMagic = "adaptdl\n";
constexpr std::size_t kHelloSize = 32;   // magic, version, rank, size, length of job, max_message
constexpr std::size_t kAnswerSize = 24;  // magic, version, status, length of text, 0
constexpr std::uint64_t kFirstReserve = std::uint64_t{1} << 20;

// Integers are little-endian, whatever the machine.
template <typename Integer>
void put(char* to, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<char>(value >> (8 * i));
}

template <typename Integer>
Integer get(const char* from) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<Integer>(value | static_cast<Integer>(static_cast<unsigned char>(from[i])) << (8 * i));
  return value;
}

// The part that every version has: the magic, then the version.
Parse parse_opening(std::string_view bytes, std::uint32_t& version) {
  const std::size_t known = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, known) != kMagic.substr(0, known)) return Parse::kGarbage;
  if (bytes.size() < kMagic.size() + 4) return Parse::kIncomplete;
  version = get<std::uint32_t>(&bytes[8]);
  return Parse::kComplete;
}

}  // namespace

std::string encode(const Hello& hello) {
  std::string bytes(kHelloSize, '\0');
  kMagic.copy(bytes.data(), kMagic.size());
  put(&bytes[8], hello.version);
  put(&bytes[12], hello.rank);
  put(&bytes[16], hello.size);
  put(&bytes[20], static_cast<std::uint32_t>(hello.job.size()));
  put(&bytes[24], hello.max_message);
  return bytes + hello.job;
}

std::string encode(const Answer& answer) {
  const std::string_view text = std::string_view(answer.text).substr(0, kMaxText);
  std::string bytes(kAnswerSize, '\0');
  kMagic.copy(bytes.data(), kMagic.size());
  put(&bytes[8], answer.version);
  put(&bytes[12], std::uint32_t{answer.accepted ? 0u : 1u});
  put(&bytes[16], static_cast<std::uint32_t>(text.size()));
  return bytes.append(text);
}

Parse parse(std::string_view bytes, Hello& hello) {
  const Parse opening = parse_opening(bytes, hello.version);
  if (opening != Parse::kComplete || hello.version != kVersion) return opening;
  if (bytes.size() < kHelloSize) return Parse::kIncomplete;
  const auto job_size = get<std::uint32_t>(&bytes[20]);
  if (job_size > kMaxJob || bytes.size() > kHelloSize + job_size) return Parse::kGarbage;
  if (bytes.size() < kHelloSize + job_size) return Parse::kIncomplete;
  hello.rank = get<std::uint32_t>(&bytes[12]);
  hello.size = get<std::uint32_t>(&bytes[16]);
  hello.max_message = get<std::uint64_t>(&bytes[24]);
  hello.job = bytes.substr(kHelloSize);
  // A name ends up in messages on a terminal.
  const bool printable = std::all_of(hello.job.begin(), hello.job.end(), [](char c) { return c >= ' ' && c != 127; });
  return printable ? Parse::kComplete : Parse::kGarbage;
}

Parse parse(std::string_view bytes, Answer& answer, std::size_t& consumed) {
  const Parse opening = parse_opening(bytes, answer.version);
  if (opening == Parse::kGarbage) return opening;
  if (bytes.size() < kAnswerSize) return Parse::kIncomplete;
  const auto text_size = get<std::uint32_t>(&bytes[16]);
  if (text_size > kMaxText) return Parse::kGarbage;
  if (bytes.size() < kAnswerSize + text_size) return Parse::kIncomplete;
  answer.accepted = get<std::uint32_t>(&bytes[12]) == 0;
  answer.text = bytes.substr(kAnswerSize, text_size);
  consumed = kAnswerSize + text_size;
  return Parse::kComplete;
}

Header encode_header(const Frame& frame, std::uint64_t payload_size) {
  Header header{};
  header[0] = static_cast<char>(frame.type);
  header[1] = static_cast<char>(frame.kind);
  put(&header[8], frame.sequence);
  put(&header[16], payload_size);
  return header;
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return "allreduce";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllgather:
      return "allgather";
    case Kind::kTeardown:
      return "teardown";
  }
  return "call";
}

std::string call_name(Kind kind, std::uint64_t sequence) { return fmt::format("{} #{}", kind_name(kind), sequence); }

void FrameReader::begin_payload() {
  const auto type = static_cast<unsigned char>(header_[0]);
  const auto kind = static_cast<unsigned char>(header_[1]);
  if (type < 1 || type > 4 || kind < 1 || kind > 4 || std::any_of(&header_[2], &header_[8], [](char c) { return c; }))
    throw CollectiveError("sent what is no frame");
  frame_.type = static_cast<Type>(type);
  frame_.kind = static_cast<Kind>(kind);
  frame_.sequence = get<std::uint64_t>(&header_[8]);
  payload_size_ = get<std::uint64_t>(&header_[16]);
  const std::uint64_t bound = frame_.type == Type::kValue ? max_payload_ : kMaxText;
  if (payload_size_ > bound)
    throw CollectiveError(fmt::format("sent a frame of {} bytes where {} are allowed", payload_size_, bound));
  frame_.payload.reserve(static_cast<std::size_t>(std::min(payload_size_, kFirstReserve)));
}

std::optional<Frame> FrameReader::take(std::string_view& bytes) {
  if (header_filled_ < header_.size()) {
    const std::size_t count = std::min(bytes.size(), header_.size() - header_filled_);
    bytes.copy(&header_[header_filled_], count);
    bytes.remove_prefix(count);
    header_filled_ += count;
    if (header_filled_ < header_.size()) return std::nullopt;
    begin_payload();
  }
  const auto missing = payload_size_ - frame_.payload.size();
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), missing));
  frame_.payload.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  if (count < missing) return std::nullopt;
  header_filled_ = 0;
  return std::exchange(frame_, {});
}

Bytes pack(const std::vector<Bytes>& values) {
  Bytes packed(8 * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) put(&packed[8 * i], std::uint64_t{values[i].size()});
  for (const Bytes& value : values) packed += value;
  return packed;
}

std::vector<Bytes> unpack(const Bytes& packed, std::size_t count) {
  std::vector<Bytes> values;
  std::size_t at = 8 * count;
  bool whole = at <= packed.size();
  for (std::size_t i = 0; whole && i < count; ++i) {
    const auto size = get<std::uint64_t>(&packed[8 * i]);
    whole = size <= packed.size() - at;
    if (!whole) break;
    values.push_back(packed.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  if (!whole || at != packed.size()) throw CollectiveError("the result of an allgather is malformed");
  return values;
}

std::uint64_t packed_bound(std::uint64_t max_message, std::size_t count) { return max_message + 8 * count; }

}  // namespace adaptdl::collective::wire
