#include "tune/study/event_record.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "event_bytes.h"

namespace adaptdl::sched::tune::tune_event_record_test {
namespace {

using namespace testing;
using State = EventFrame::State;

// Returns the values of an event that contains a tensor.
std::vector<double> tensor_values(const std::string& tensor) {
  std::vector<double> values;
  for (const EventScalar& scalar : read_event_scalars(event_of(1, 2, tensor_value("loss", tensor))))
    values.push_back(scalar.value);
  return values;
}

std::string shape(const std::vector<std::uint64_t>& sizes) {
  std::string dimensions;
  for (const std::uint64_t size : sizes) dimensions += bytes_field(2, number_field(1, size));
  return bytes_field(2, dimensions);
}

TEST_CASE("a complete record written by TensorFlow is recognized as complete") {
  // This is the first record of each of TensorFlow's files: Event{wall_time, file_version: "brain.Event:2"}.
  const std::string data = double_field(1, 1.5e9) + bytes_field(3, "brain.Event:2");
  const std::string record = event_frame(data);
  CHECK(record.substr(0, 12) == std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  const std::string bytes = record + "more";
  const EventFrame frame = read_event_frame(bytes);
  CHECK(frame.state == State::kWhole);
  CHECK(frame.size == record.size());
  CHECK(frame.data == data);
  CHECK(read_event_scalars(data).empty());
}

TEST_CASE("a record truncated at any byte is partial") {
  const std::string record = scalar_record(1, 2, "loss", 0.5f);
  for (std::size_t size = 0; size < record.size(); ++size) {
    const EventFrame frame = read_event_frame(std::string_view(record).substr(0, size));
    REQUIRE(frame.state == State::kPartial);
    CHECK(frame.size == (size < kEventHeader ? kEventHeader : record.size()));
  }
  CHECK(read_event_frame(record).state == State::kWhole);
}

TEST_CASE("the checksums detect a changed byte") {
  const std::string record = scalar_record(1, 2, "loss", 0.5f);
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const EventFrame frame = read_event_frame(damaged);
    REQUIRE(frame.state == (at < kEventHeader ? State::kUnreadable : State::kDamaged));
    CHECK(frame.data.empty());
    if (frame.state == State::kDamaged) CHECK(frame.size == record.size());
  }
}

TEST_CASE("a record with an impossible length is unreadable, even with a valid checksum") {
  CHECK(read_event_frame(event_header(std::numeric_limits<std::uint64_t>::max())).state == State::kUnreadable);
  CHECK(read_event_frame(event_header(std::uint64_t{1} << 40)).state == State::kPartial);
}

TEST_CASE("simple values are read with their tags, step and time") {
  const std::string event =
      double_field(1, 12.25) + number_field(2, std::uint64_t{1} << 40) +
      bytes_field(5, bytes_field(1, simple_value("loss", 0.5f)) + bytes_field(1, bytes_field(1, "text")) +
                         bytes_field(1, simple_value("accuracy", 0.25f)));
  const auto scalars = read_event_scalars(event);
  REQUIRE(scalars.size() == 2);
  CHECK(scalars[0].tag == "loss");
  CHECK(scalars[0].value == 0.5);
  CHECK(scalars[1].tag == "accuracy");
  CHECK(scalars[1].value == 0.25);
  CHECK(scalars[1].step == std::int64_t{1} << 40);
  CHECK(scalars[1].wall_time == 12.25);
}

TEST_CASE("the step may follow the values, or be absent or negative") {
  const std::string summary = bytes_field(5, bytes_field(1, simple_value("loss", 1)));
  CHECK(read_event_scalars(summary + number_field(2, 7)).at(0).step == 7);
  CHECK(read_event_scalars(summary).at(0).step == 0);
  CHECK(read_event_scalars(summary + number_field(2, static_cast<std::uint64_t>(-1))).at(0).step == -1);
}

TEST_CASE("non-finite values are preserved") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(std::isnan(read_event_scalars(event_of(1, 2, simple_value("loss", std::nanf("")))).at(0).value));
  CHECK(read_event_scalars(event_of(1, 2, simple_value("loss", -kInfinity))).at(0).value == -kInfinity);
}

TEST_CASE("a tensor with one floating-point number is a scalar") {
  const std::vector<double> half{0.5};
  const std::string is_float = number_field(1, 1), is_double = number_field(1, 2);
  CHECK(tensor_values(is_float + float_field(5, 0.5f)) == half);
  CHECK(tensor_values(is_float + bytes_field(5, float_bits(0.5f))) == half);
  CHECK(tensor_values(is_float + shape({}) + bytes_field(4, float_bits(0.5f))) == half);
  CHECK(tensor_values(is_float + shape({1, 1}) + bytes_field(4, float_bits(0.5f))) == half);
  CHECK(tensor_values(is_double + double_field(6, 0.5)) == half);
  CHECK(tensor_values(is_double + bytes_field(6, double_bits(0.5))) == half);
  CHECK(tensor_values(is_double + bytes_field(4, double_bits(0.5))) == half);
}

TEST_CASE("16-bit floating-point numbers are read") {
  const auto read = [](unsigned type, std::uint64_t bits) {
    const std::string content = little_endian(static_cast<std::uint16_t>(bits));
    const auto values = tensor_values(number_field(1, type) + number_field(13, bits));
    CHECK(tensor_values(number_field(1, type) + bytes_field(13, varint(bits))).size() == 1);
    CHECK(tensor_values(number_field(1, type) + bytes_field(4, content)).size() == 1);
    return values.at(0);
  };
  constexpr unsigned kHalfType = 19, kBrainType = 14;
  CHECK(read(kHalfType, 0x3c00) == 1);
  CHECK(read(kHalfType, 0xc500) == -5);
  CHECK(read(kHalfType, 0x7bff) == 65504);
  CHECK(read(kHalfType, 0x0001) == std::ldexp(1, -24));
  CHECK(read(kHalfType, 0xfc00) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(read(kHalfType, 0x7e00)));
  CHECK(read(kBrainType, 0x3f80) == 1);
  CHECK(read(kBrainType, 0xc0a0) == -5);
}

TEST_CASE("tensors of other types or sizes are not scalars") {
  const std::string is_float = number_field(1, 1), two = float_bits(1) + float_bits(2);
  CHECK(tensor_values(is_float).empty());
  CHECK(tensor_values(float_field(5, 1)).empty());
  CHECK(tensor_values(is_float + double_field(6, 1)).empty());
  CHECK(tensor_values(is_float + bytes_field(5, two)).empty());
  CHECK(tensor_values(is_float + shape({2}) + bytes_field(4, two)).empty());
  CHECK(tensor_values(is_float + shape({2}) + float_field(5, 1)).empty());
  CHECK(tensor_values(is_float + shape({0}) + float_field(5, 1)).empty());
  CHECK(tensor_values(is_float + bytes_field(2, number_field(3, 1)) + float_field(5, 1)).empty());
  CHECK(tensor_values(is_float + bytes_field(4, "abc")).empty());
  // The types are DT_STRING and DT_INT64.
  CHECK(tensor_values(number_field(1, 7) + bytes_field(8, "text")).empty());
  CHECK(tensor_values(number_field(1, 9) + number_field(10, 1)).empty());
}

TEST_CASE("truncated and malformed messages have no scalars") {
  const std::string event = event_of(1, 2, simple_value("loss", 0.5f));
  for (std::size_t size = 0; size < event.size(); ++size)
    CHECK(read_event_scalars(std::string_view(event).substr(0, size)).empty());
  CHECK(read_event_scalars(event).size() == 1);
  CHECK(read_event_scalars(event + "\xff").empty());
  // The fields have wrong types.
  CHECK(read_event_scalars(number_field(1, 3) + bytes_field(2, "x") + number_field(5, 1)).empty());
}

}  // namespace
}  // namespace adaptdl::sched::tune::tune_event_record_test
