#include "kube/stream/spdy_frames.h"

#include <algorithm>
#include <utility>

namespace adaptdl::kube::spdy {
namespace {

constexpr std::size_t kHead = 8;
constexpr std::size_t kMaxControlSize = std::size_t{64} << 10;
constexpr unsigned kVersion = 0x8003;  // including the bit that distinguishes control frames from data frames
constexpr unsigned char kFin = 1;
enum Control : unsigned { kSynStream = 1, kReset = 3, kPing = 6 };

void put(std::string& to, std::uint32_t number, int bytes = 4) {
  while (bytes-- > 0) to += static_cast<char>(number >> 8 * bytes);
}

std::uint32_t number_at(const char* from, int bytes = 4) {
  std::uint32_t number = 0;
  for (int i = 0; i < bytes; ++i) number = number << 8 | static_cast<unsigned char>(from[i]);
  return number;
}

std::string control_frame(Control type, const std::string& payload) {
  std::string frame;
  put(frame, kVersion, 2);
  put(frame, type, 2);
  put(frame, static_cast<std::uint32_t>(payload.size()));  // no flags, and three bytes of length
  return frame + payload;
}

// Encodes one header as a part of the connection's zlib stream. The header is stored uncompressed and requires no
// dictionary.
std::string header_block(std::string_view name, std::string_view value, bool first) {
  std::string header;
  put(header, 1);
  for (const std::string_view text : {name, value}) {
    put(header, static_cast<std::uint32_t>(text.size()));
    header += text;
  }
  std::string block = first ? "\x78\x01" : "";
  const auto stored = [&block](const std::string& bytes) {  // RFC 1951, 3.2.4
    const auto size = static_cast<std::uint16_t>(bytes.size());
    for (const unsigned byte : {0u, size & 0xFFu, unsigned{size} >> 8, ~size & 0xFFu, ~size >> 8 & 0xFFu})
      block += static_cast<char>(byte);
    block += bytes;
  };
  stored(header);
  stored("");  // an empty block flushes the receiver's decompressor
  return block;
}

}  // namespace

FrameReader::Event FrameReader::next() {
  while (true) {
    const std::string_view waiting(buffer_.data() + begin_, end_ - begin_);
    if (data_left_ > 0) return waiting.empty() ? Event{} : take_data(waiting);
    if (waiting.size() < kHead) return {};
    const std::size_t size = number_at(waiting.data() + 5, 3);
    if ((waiting[0] & 0x80) == 0) {
      begin_ += kHead;
      id_ = number_at(waiting.data());
      data_left_ = size;
      ends_ = (waiting[4] & kFin) != 0;
      if (size == 0 && ends_) return {Event::Kind::kData, id_, {}, true};
      continue;
    }
    if (size > kMaxControlSize || number_at(waiting.data(), 2) != kVersion) return {Event::Kind::kMalformed};
    if (waiting.size() < kHead + size) return {};
    const Event event = take_control(number_at(waiting.data() + 2, 2), waiting.substr(kHead, size));
    if (event.kind == Event::Kind::kMalformed) return event;
    begin_ += kHead + size;
    if (event.kind != Event::Kind::kMore) return event;
  }
}

FrameReader::Event FrameReader::take_data(std::string_view waiting) {
  const std::string_view piece = waiting.substr(0, data_left_);
  begin_ += piece.size();
  data_left_ -= piece.size();
  return {Event::Kind::kData, id_, piece, ends_ && data_left_ == 0};
}

FrameReader::Event FrameReader::take_control(unsigned type, std::string_view payload) const {
  if (type != kReset && type != kPing) return {};
  if (payload.size() != (type == kReset ? 8 : 4)) return {Event::Kind::kMalformed};
  return {type == kReset ? Event::Kind::kReset : Event::Kind::kPing, number_at(payload.data())};
}

std::span<char> FrameReader::room() {
  std::copy(buffer_.begin() + begin_, buffer_.begin() + end_, buffer_.begin());
  end_ -= std::exchange(begin_, 0);
  return std::span(buffer_).subspan(end_);
}

std::string open_stream(std::uint32_t id, std::string_view type, bool first) {
  std::string payload;
  put(payload, id);
  put(payload, 0);     // no associated stream
  put(payload, 0, 2);  // no priority, no credentials
  return control_frame(kSynStream, payload + header_block("streamtype", type, first));
}

std::string data_head(std::uint32_t id, std::size_t size) {
  std::string head;
  put(head, id);
  put(head, static_cast<std::uint32_t>(size));  // no flags, and three bytes of length
  return head;
}

std::string ping(std::uint32_t id) {
  std::string payload;
  put(payload, id);
  return control_frame(kPing, payload);
}

}  // namespace adaptdl::kube::spdy
