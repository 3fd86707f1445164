// Encodes and decodes the SPDY/3.1 frames (sections 2.2 and 2.6) that are necessary to run commands in containers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace adaptdl::kube::spdy {

// Decodes frames from the received bytes of an untrusted peer. Data is passed on before its frame is complete.
class FrameReader {
 public:
  struct Event {
    enum class Kind { kMore, kData, kReset, kPing, kMalformed };
    Kind kind = Kind::kMore;  // kMore: more bytes must be received first
    std::uint32_t id = 0;     // id of the stream or ping
    std::string_view data{};  // bytes of kData; valid until `room` is called
    bool ends = false;        // for kData: these are the stream's last bytes
  };

  // Returns the next event. Frames of other types are skipped. No event follows kMalformed.
  Event next();
  // Returns the space for received bytes. It is never empty after kMore.
  std::span<char> room();
  void received(std::size_t size) { end_ += size; }
  // Returns whether a frame is incomplete.
  bool in_frame() const { return data_left_ > 0 || begin_ < end_; }

 private:
  Event take_data(std::string_view waiting);
  Event take_control(unsigned type, std::string_view payload) const;

  std::array<char, std::size_t{128} << 10> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // range of the bytes that have not been decoded yet
  std::uint32_t id_ = 0;             // stream of the current data frame
  std::size_t data_left_ = 0;        // number of bytes of that frame that are still missing
  bool ends_ = false;                // the stream ends with that frame
};

// Opens a stream whose only header is "streamtype". Set `first` for the connection's first stream.
std::string open_stream(std::uint32_t id, std::string_view type, bool first);
// Returns the head of a frame with `size` bytes of data.
std::string data_head(std::uint32_t id, std::size_t size);
std::string ping(std::uint32_t id);

}  // namespace adaptdl::kube::spdy
