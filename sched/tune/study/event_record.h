// Parses TensorBoard event files: records in TensorFlow's TFRecord framing, each with an encoded Event message.
//
//   length: 8 bytes | masked CRC-32C of length: 4 | data: length bytes | masked CRC-32C of data: 4
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace adaptdl::sched::tune {

// The number of bytes that precede a record's data.
inline constexpr std::uint64_t kEventHeader = 12;

struct EventFrame {
  enum class State {
    kWhole,
    kPartial,     // `size` bytes are needed to continue
    kDamaged,     // the data does not match its checksum; the next record follows
    kUnreadable,  // the length does not match its checksum, so it is unknown where the next record begins
  };
  State state = State::kPartial;
  std::uint64_t size = 0;  // bytes of the record, or of its header if that is incomplete
  std::string_view data;   // the Event of a complete record; points into the given bytes
};

// Reads the record at the beginning of the bytes.
EventFrame read_event_frame(std::string_view bytes);

struct EventScalar {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::string_view tag;  // points into the event
  double value = 0;
};

// Returns the scalar floating-point values in an event, whether written in the form of TensorFlow 1 and PyTorch
// (simple_value) or of TensorFlow 2 (a tensor). The result is empty if the event contains no such values or is not a
// valid message.
std::vector<EventScalar> read_event_scalars(std::string_view event);

}  // namespace adaptdl::sched::tune
