#include "tune/study/event_record.h"

#include <bit>
#include <boost/crc.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <protozero/pbf_reader.hpp>

#include "base/little_endian.h"

namespace adaptdl::sched::tune {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

// The fields of TensorFlow's messages that are read here. A tensor's numbers may be packed or not.
constexpr std::uint32_t kEventWallTime = tag_and_type(1, pbf_wire_type::fixed64);
constexpr std::uint32_t kEventStep = tag_and_type(2, pbf_wire_type::varint);
constexpr std::uint32_t kEventSummary = tag_and_type(5, pbf_wire_type::length_delimited);
constexpr std::uint32_t kSummaryValue = tag_and_type(1, pbf_wire_type::length_delimited);
constexpr std::uint32_t kValueTag = tag_and_type(1, pbf_wire_type::length_delimited);
constexpr std::uint32_t kValueSimple = tag_and_type(2, pbf_wire_type::fixed32);
constexpr std::uint32_t kValueTensor = tag_and_type(8, pbf_wire_type::length_delimited);
constexpr std::uint32_t kTensorType = tag_and_type(1, pbf_wire_type::varint);
constexpr std::uint32_t kTensorShape = tag_and_type(2, pbf_wire_type::length_delimited);
constexpr std::uint32_t kTensorContent = tag_and_type(4, pbf_wire_type::length_delimited);
constexpr std::uint32_t kTensorFloat = tag_and_type(5, pbf_wire_type::fixed32);
constexpr std::uint32_t kTensorFloats = tag_and_type(5, pbf_wire_type::length_delimited);
constexpr std::uint32_t kTensorDouble = tag_and_type(6, pbf_wire_type::fixed64);
constexpr std::uint32_t kTensorDoubles = tag_and_type(6, pbf_wire_type::length_delimited);
constexpr std::uint32_t kTensorHalf = tag_and_type(13, pbf_wire_type::varint);
constexpr std::uint32_t kTensorHalves = tag_and_type(13, pbf_wire_type::length_delimited);
constexpr std::uint32_t kShapeDimension = tag_and_type(2, pbf_wire_type::length_delimited);
constexpr std::uint32_t kShapeUnknown = tag_and_type(3, pbf_wire_type::varint);
constexpr std::uint32_t kDimensionSize = tag_and_type(1, pbf_wire_type::varint);

// The supported types of a tensor's numbers.
constexpr std::int32_t kFloat = 1, kDouble = 2, kBfloat16 = 14, kHalf = 19;

// TFRecord masks its checksums because a checksum of data that itself contains checksums is weak.
std::uint32_t masked_crc32c(std::string_view data) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data.data(), data.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xa282ead8u;
}

bool has_checksum(std::string_view data, const char* checksum) {
  return masked_crc32c(data) == get_little_endian<std::uint32_t>(checksum);
}

std::string_view text_of(protozero::data_view view) { return {view.data(), view.size()}; }

std::size_t size_of_number(std::int32_t type) {
  return type == kDouble ? 8 : type == kFloat ? 4 : type == kHalf || type == kBfloat16 ? 2 : 0;
}

double half_number(std::uint64_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 0x1f), fraction = static_cast<int>(bits & 0x3ff);
  double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  if (exponent == 0x1f)
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return (bits >> 15 & 1) != 0 ? -size : size;
}

double number_of(std::int32_t type, std::uint64_t bits) {
  if (type == kDouble) return std::bit_cast<double>(bits);
  if (type == kHalf) return half_number(bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(type == kBfloat16 ? bits << 16 : bits));
}

std::int64_t dimension_size(pbf_reader dimension) {
  std::int64_t size = 0;
  while (dimension.next())
    if (dimension.tag_and_type() == kDimensionSize)
      size = dimension.get_int64();
    else
      dimension.skip();
  return size;
}

bool has_one_element(pbf_reader shape) {
  bool one = true;
  while (shape.next()) {
    if (shape.tag_and_type() == kShapeDimension)
      one = dimension_size(shape.get_message()) == 1 && one;
    else if (shape.tag_and_type() == kShapeUnknown)
      one = shape.get_uint64() == 0 && one;
    else
      shape.skip();
  }
  return one;
}

// Collects the numbers of a tensor as bits, `size` bytes each. Only the last is kept, since a scalar has just one.
struct TensorNumbers {
  std::size_t size = 0, count = 0;
  std::uint64_t last = 0;

  void add(std::size_t width, std::uint64_t bits) {
    size = width;
    last = bits;
    ++count;
  }
};

std::optional<double> read_tensor(pbf_reader tensor) {
  std::int32_t type = 0;
  bool one = true;
  std::string_view content;
  TensorNumbers numbers;
  while (tensor.next()) {
    switch (tensor.tag_and_type()) {
      case kTensorType:
        type = tensor.get_int32();
        break;
      case kTensorShape:
        one = has_one_element(tensor.get_message());
        break;
      case kTensorContent:
        content = text_of(tensor.get_view());
        break;
      case kTensorFloat:
        numbers.add(4, tensor.get_fixed32());
        break;
      case kTensorFloats:
        for (const std::uint32_t bits : tensor.get_packed_fixed32()) numbers.add(4, bits);
        break;
      case kTensorDouble:
        numbers.add(8, tensor.get_fixed64());
        break;
      case kTensorDoubles:
        for (const std::uint64_t bits : tensor.get_packed_fixed64()) numbers.add(8, bits);
        break;
      case kTensorHalf:
        numbers.add(2, tensor.get_uint64() & 0xffff);
        break;
      case kTensorHalves:
        for (const std::uint64_t bits : tensor.get_packed_uint64()) numbers.add(2, bits & 0xffff);
        break;
      default:
        tensor.skip();
    }
  }
  const std::size_t size = size_of_number(type);
  if (!one || size == 0) return {};
  if (content.size() == size) {
    char bytes[8] = {};
    content.copy(bytes, size);
    return number_of(type, get_little_endian<std::uint64_t>(bytes));
  }
  if (!content.empty() || numbers.count != 1 || numbers.size != size) return {};
  return number_of(type, numbers.last);
}

std::optional<EventScalar> read_value(pbf_reader message) {
  std::string_view tag;
  std::optional<double> value;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case kValueTag:
        tag = text_of(message.get_view());
        break;
      case kValueSimple:
        value = message.get_float();
        break;
      case kValueTensor:
        value = read_tensor(message.get_message());
        break;
      default:
        message.skip();
    }
  }
  return value ? std::optional(EventScalar{0, 0, tag, *value}) : std::nullopt;
}

void read_summary(pbf_reader summary, std::vector<EventScalar>& scalars) {
  while (summary.next()) {
    if (summary.tag_and_type() != kSummaryValue)
      summary.skip();
    else if (const auto scalar = read_value(summary.get_message()))
      scalars.push_back(*scalar);
  }
}

}  // namespace

EventFrame read_event_frame(std::string_view bytes) {
  using State = EventFrame::State;
  if (bytes.size() < kEventHeader) return {State::kPartial, kEventHeader, {}};
  const auto length = get_little_endian<std::uint64_t>(bytes.data());
  constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 62;  // its sum with a file offset does not overflow
  if (length > kMaxLength || !has_checksum(bytes.substr(0, 8), bytes.data() + 8)) return {State::kUnreadable, 0, {}};
  const std::uint64_t size = kEventHeader + length + 4;
  if (bytes.size() < size) return {State::kPartial, size, {}};
  const std::string_view data = bytes.substr(kEventHeader, length);
  if (!has_checksum(data, bytes.data() + kEventHeader + length)) return {State::kDamaged, size, {}};
  return {State::kWhole, size, data};
}

std::vector<EventScalar> read_event_scalars(std::string_view event) {
  std::vector<EventScalar> scalars;
  double wall_time = 0;
  std::int64_t step = 0;
  try {
    for (pbf_reader message(event.data(), event.size()); message.next();) {
      switch (message.tag_and_type()) {
        case kEventWallTime:
          wall_time = message.get_double();
          break;
        case kEventStep:
          step = message.get_int64();
          break;
        case kEventSummary:
          read_summary(message.get_message(), scalars);
          break;
        default:
          message.skip();
      }
    }
  } catch (const protozero::exception&) {
    return {};
  }
  for (EventScalar& scalar : scalars) {
    scalar.wall_time = wall_time;
    scalar.step = step;
  }
  return scalars;
}

}  // namespace adaptdl::sched::tune
