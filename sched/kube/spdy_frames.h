// Encodes and decodes the frames of SPDY/3.1 (sections 2.2 and 2.6) that commands in containers need.
//
// Threading: a FrameReader is used by one thread at a time.
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
    std::uint32_t id = 0;     // of the stream or the ping
    std::string_view data{};  // of kData; valid until `room`
    bool ends = false;        // of kData: these are the stream's last bytes
  };

  // Returns the next event. Frames that have no meaning here are skipped. No event follows kMalformed.
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
  std::size_t begin_ = 0, end_ = 0;  // of the bytes that were not decoded yet
  std::uint32_t id_ = 0;             // stream of the current data frame
  std::size_t data_left_ = 0;        // bytes missing of that frame
  bool ends_ = false;                // the stream ends with that frame
};

// Opens a stream whose only header is "streamtype". `first`: it is the first stream of the connection.
std::string open_stream(std::uint32_t id, std::string_view type, bool first);
// Returns the head of a frame with `size` bytes of data.
std::string data_head(std::uint32_t id, std::size_t size);
std::string ping(std::uint32_t id);

}  // namespace adaptdl::kube::spdy
