#include "collective/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/little_endian.h"
#include "base/printable.h"

namespace adaptdl::collective::wire {
namespace {

constexpr std::size_t kHelloSize = 16;  // rank, size, max_message
constexpr std::size_t kAnswerSize = 4;  // status
constexpr std::size_t kHeaderSize = 24;
constexpr std::uint64_t kFirstReserve = std::uint64_t{1} << 20;

// Moves bytes to `part` until it contains `size` bytes. Returns false if there are too few.
bool fill(std::string& part, std::uint64_t size, std::string_view& bytes) {
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), size - part.size()));
  part.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  return part.size() == size;
}

}  // namespace

std::string encode(const Hello& hello) {
  return little_endian(hello.rank) + little_endian(hello.size) + little_endian(hello.max_message) + hello.job;
}

std::string encode(const Answer& answer) {
  return little_endian(std::uint32_t{answer.accepted ? 0u : 1u}).append(answer.text.substr(0, kMaxText));
}

std::optional<Hello> parse_hello(std::string_view bytes) {
  if (bytes.size() < kHelloSize || bytes.size() > kMaxHello) return {};
  // The name appears in error messages on a terminal, so it must not contain control characters.
  const std::string_view job = bytes.substr(kHelloSize);
  if (std::any_of(job.begin(), job.end(), [](char c) { return c < ' ' || c == 127; })) return {};
  return Hello{get_little_endian<std::uint32_t>(&bytes[0]), get_little_endian<std::uint32_t>(&bytes[4]),
               get_little_endian<std::uint64_t>(&bytes[8]), std::string(job)};
}

std::optional<Answer> parse_answer(std::string_view bytes) {
  if (bytes.size() < kAnswerSize || bytes.size() > kMaxAnswer) return {};
  return Answer{get_little_endian<std::uint32_t>(&bytes[0]) == 0, std::string(bytes.substr(kAnswerSize))};
}

std::string encode_head(const Frame& frame, std::uint64_t payload_size) {
  const auto purpose = frame.purpose.substr(0, kMaxPurpose);
  std::string head(kHeaderSize, '\0');
  head[0] = static_cast<char>(frame.type);
  head[1] = static_cast<char>(frame.kind);
  head[2] = static_cast<char>(purpose.size());
  put_little_endian(&head[8], frame.sequence);
  put_little_endian(&head[16], payload_size);
  return head + purpose;
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

std::string call_text(Kind kind, std::string_view purpose) {
  return purpose.empty() ? std::string(kind_name(kind)) : fmt::format("{} ({})", kind_name(kind), printable(purpose));
}

void FrameReader::on_header() {
  const auto type = static_cast<unsigned char>(header_[0]);
  const auto kind = static_cast<unsigned char>(header_[1]);
  if (type < 1 || type > 5 || kind < 1 || kind > 4 || std::any_of(&header_[3], &header_[8], [](char c) { return c; }))
    throw CollectiveError("sent an invalid frame");
  frame_.type = static_cast<Type>(type);
  frame_.kind = static_cast<Kind>(kind);
  frame_.sequence = get_little_endian<std::uint64_t>(&header_[8]);
  purpose_size_ = static_cast<unsigned char>(header_[2]);
  payload_size_ = get_little_endian<std::uint64_t>(&header_[16]);
  const std::uint64_t bound = frame_.type == Type::kValue ? max_payload_ : kMaxText;
  if (payload_size_ > bound)
    throw CollectiveError(fmt::format("sent a frame of {} bytes, but at most {} are allowed", payload_size_, bound));
  frame_.payload.reserve(static_cast<std::size_t>(std::min(payload_size_, kFirstReserve)));
}

std::optional<Frame> FrameReader::take(std::string_view& bytes) {
  if (header_.size() < kHeaderSize) {
    if (!fill(header_, kHeaderSize, bytes)) return std::nullopt;
    on_header();
  }
  if (!fill(frame_.purpose, purpose_size_, bytes) || !fill(frame_.payload, payload_size_, bytes)) return std::nullopt;
  header_.clear();
  return std::exchange(frame_, {});
}

Bytes pack(const std::vector<Bytes>& values) {
  Bytes packed(8 * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) put_little_endian(&packed[8 * i], std::uint64_t{values[i].size()});
  for (const Bytes& value : values) packed += value;
  return packed;
}

std::vector<Bytes> unpack(const Bytes& packed, std::size_t count) {
  std::vector<Bytes> values;
  std::size_t at = 8 * count;
  bool whole = at <= packed.size();
  for (std::size_t i = 0; whole && i < count; ++i) {
    const auto size = get_little_endian<std::uint64_t>(&packed[8 * i]);
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
