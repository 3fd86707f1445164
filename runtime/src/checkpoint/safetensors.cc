#include "checkpoint/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/utf8.h"
#include "checkpoint/json_text.h"

namespace adaptdl::checkpoint {

using nlohmann::json;

namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // bytes; the limit of the reference implementation
constexpr const char* kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<Dtype, 13> kDtypes{{{"BOOL", 1},
                                         {"U8", 1},
                                         {"I8", 1},
                                         {"I16", 2},
                                         {"U16", 2},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I32", 4},
                                         {"U32", 4},
                                         {"F32", 4},
                                         {"F64", 8},
                                         {"I64", 8},
                                         {"U64", 8}}};

TensorPlace parse_tensor(const std::string& name, const json& entry, std::uint64_t data, const std::string& file) {
  const auto bad = [&](const char* why) { return Damage(fmt::format("{}: tensor '{}': {}", file, name, why)); };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    throw bad("must have exactly the members dtype, shape and data_offsets");
  const json& dtype = entry["dtype"];
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    throw bad("a member has the wrong type");
  TensorPlace place;
  place.info = {name, dtype.get<std::string>(), {}};
  for (const json& size : shape) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      throw bad("its shape has an invalid size");
    place.info.shape.push_back(size.get<std::int64_t>());
  }
  std::size_t bytes = 0;
  try {
    bytes = place.info.bytes();
  } catch (const CheckpointError& error) {
    throw Damage(fmt::format("{}: {}", file, error.what()));
  }
  const auto begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > std::numeric_limits<std::uint64_t>::max() - data || end - begin != bytes)
    throw bad("its offsets do not match its shape");
  place.begin = data + begin;
  place.end = data + end;
  return place;
}

}  // namespace

std::size_t element_size(std::string_view dtype) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == dtype; });
  return found == kDtypes.end() ? 0 : found->size;
}

std::vector<std::size_t> layout_order(const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return element_size(tensors[a].dtype) > element_size(tensors[b].dtype);
  });
  return order;
}

std::string safetensors_head(const std::vector<TensorInfo>& tensors) {
  json header = json::object();
  std::uint64_t offset = 0;
  for (const TensorInfo& info : tensors) {
    const std::uint64_t end = offset + info.bytes();
    header[info.name] = {{"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  if (text.size() > kMaxHeader) throw CheckpointError("too many tensors for one safetensors file; split the state");
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return head + text;
}

void check_tensor(const TensorInfo& info, const std::string& what) {
  if (info.name.empty()) throw CheckpointError(fmt::format("{}: a tensor needs a name", what));
  if (info.name == kMetadata)
    throw CheckpointError(fmt::format("{}: the tensor name '{}' is reserved by safetensors", what, kMetadata));
  if (!is_utf8(info.name)) throw CheckpointError(fmt::format("{}: the name of a tensor must be valid UTF-8", what));
  try {
    (void)info.bytes();
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("{}: {}", what, error.what()));
  }
}

std::vector<TensorPlace> read_safetensors_head(const Input& file) {
  const std::string name = file.path().string();
  if (file.size() < 8) throw Damage(fmt::format("'{}' is too short for a safetensors file", name));
  std::array<std::byte, 8> length_bytes;
  file.read(0, length_bytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(length_bytes[i]) << (8 * i);
  if (length > kMaxHeader || length > file.size() - 8)
    throw Damage(fmt::format("{}: the header has an invalid length", name));
  std::string text(length, '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') throw Damage(fmt::format("{}: the header is not a JSON object", name));

  const json header = parse_json(text, name);
  std::vector<TensorPlace> places;
  for (const auto& [key, entry] : header.items())
    if (key != kMetadata) places.push_back(parse_tensor(key, entry, 8 + length, name));
  std::sort(places.begin(), places.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t offset = 8 + length;
  for (const TensorPlace& place : places) {
    if (place.begin != offset)
      throw Damage(fmt::format("{}: tensor '{}' overlaps another, or there is a gap before it", name, place.info.name));
    offset = place.end;
  }
  if (offset != file.size())
    throw Damage(
        fmt::format("{}: the tensors end at byte {}, but the file ends at byte {}", name, offset, file.size()));
  return places;
}

std::size_t TensorInfo::bytes() const {
  std::size_t size = element_size(dtype);
  if (size == 0) throw CheckpointError(fmt::format("tensor '{}' has unknown dtype '{}'", name, dtype));
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) throw CheckpointError(fmt::format("tensor '{}' has a negative size", name));
    if (__builtin_mul_overflow(size, static_cast<std::size_t>(dimension), &size) ||
        size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()))
      throw CheckpointError(fmt::format("tensor '{}' is too large", name));
  }
  return size;
}

}  // namespace adaptdl::checkpoint
