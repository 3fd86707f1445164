// Frames of SPDY/3.1 (sections 2.2 and 2.6), as far as commands in containers need them.
//
// Threading: a FrameReader belongs to one thread at a time; the rest are plain functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace adaptdl::kube::spdy {

// Takes frames out of bytes as they come, whoever sent them. Data is passed on before all of its frame is there.
class FrameReader {
 public:
  struct Event {
    enum class Kind { kMore, kData, kReset, kPing, kMalformed };
    Kind kind = Kind::kMore;  // kMore: first receive some
    std::uint32_t id = 0;     // of the stream, or the ping's
    std::string_view data{};  // of kData; lasts until `room`
    bool ends = false;        // of kData: the stream ends with it
  };

  // What comes next. Frames that change nothing here are passed over. Nothing follows kMalformed.
  Event next();
  // Where what is received goes. Never empty after kMore.
  std::span<char> room();
  void received(std::size_t size) { end_ += size; }
  // Whether a frame has begun that has not ended.
  bool in_frame() const { return data_left_ > 0 || begin_ < end_; }

 private:
  Event take_data(std::string_view waiting);
  Event take_control(unsigned type, std::string_view payload) const;

  std::array<char, std::size_t{128} << 10> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what was not taken yet
  std::uint32_t id_ = 0;             // of the stream whose data is received
  std::size_t data_left_ = 0;        // of its frame
  bool ends_ = false;                // the stream, with this frame
};

// Opens a stream whose one header is "streamtype". `first`: of the connection.
std::string open_stream(std::uint32_t id, std::string_view type, bool first);
// What is before so many bytes of data.
std::string data_head(std::uint32_t id, std::size_t size);
std::string ping(std::uint32_t id);

}  // namespace adaptdl::kube::spdy
