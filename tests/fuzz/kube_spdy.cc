// Reads any bytes as a SPDY stream from a server: the events do not depend on how the bytes are split into pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "kube/stream/spdy_frames.h"

using adaptdl::kube::spdy::FrameReader;
using Kind = FrameReader::Event::Kind;

namespace {

// Returns all events of a reader, with the data of consecutive events joined; `sizes` are the sizes of the pieces.
std::string events_of(const std::uint8_t* data, std::size_t size, const std::uint8_t* sizes, std::size_t count) {
  static FrameReader fresh;
  const auto reader = std::make_unique<FrameReader>(fresh);
  std::string all;
  std::uint32_t stream = 0;
  bool in_data = false;
  std::size_t passed = 0;
  for (std::size_t at = 0, piece = 0;;) {
    const FrameReader::Event event = reader->next();
    if (event.kind == Kind::kMore) {
      if (at == size) return all + (reader->in_frame() ? " within" : " between");
      const auto room = reader->room();
      if (room.empty()) std::abort();
      const std::size_t most = count == 0 ? size : std::size_t{1} + sizes[piece++ % count];
      const std::size_t taken = std::min({most, size - at, room.size()});
      std::copy_n(data + at, taken, room.begin());
      reader->received(taken);
      at += taken;
      continue;
    }
    if (event.kind == Kind::kMalformed) return all + " malformed";
    if ((passed += event.data.size()) > size) std::abort();
    if (event.kind == Kind::kData && (!in_data || stream != event.id)) all += " data " + std::to_string(event.id) + ":";
    all += event.data;
    if (event.ends) all += " end";
    if (event.kind == Kind::kReset) all += " reset " + std::to_string(event.id);
    if (event.kind == Kind::kPing) all += " ping " + std::to_string(event.id);
    in_data = event.kind == Kind::kData && !event.ends;
    stream = event.id;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t count = std::min<std::size_t>(size, 4);
  const std::uint8_t one = 0;
  const std::string whole = events_of(data + count, size - count, nullptr, 0);
  if (events_of(data + count, size - count, data, count) != whole) std::abort();
  if (events_of(data + count, size - count, &one, 1) != whole) std::abort();
  return 0;
}
