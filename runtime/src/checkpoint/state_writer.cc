#include "checkpoint/state_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/counted.h"
#include "base/utf8.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"

namespace adaptdl::checkpoint {

namespace {
constexpr std::size_t kWriteChunk = std::size_t{8} << 20;
}

void Writer::tensor(TensorInfo info, std::span<const std::byte> data) {
  if (info.bytes() != data.size())
    throw CheckpointError(fmt::format("tensor '{}' has {} of data, but its shape requires {}", info.name,
                                      counted(data.size(), "byte"), info.bytes()));
  tensor(std::move(info), [data](std::size_t offset, std::span<std::byte> out) {
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  });
}

void Writer::bytes(std::string_view name, std::span<const std::byte> data) {
  tensor(TensorInfo{std::string(name), "U8", {static_cast<std::int64_t>(data.size())}}, data);
}

void Writer::bytes(std::string_view name, std::vector<std::byte>&& data) {
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(data));
  tensor(TensorInfo{std::string(name), "U8", {static_cast<std::int64_t>(kept->size())}},
         [kept](std::size_t offset, std::span<std::byte> out) {
           std::copy_n(kept->begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
         });
}

void StateWriter::json(std::string_view name, nlohmann::json value) {
  const std::string key(name);
  if (key.empty()) throw CheckpointError(fmt::format("{}: a JSON value needs a name", what_));
  if (!is_utf8(key)) throw CheckpointError(fmt::format("{}: the name of a JSON value must be valid UTF-8", what_));
  if (json_.contains(key)) throw CheckpointError(fmt::format("{} saves two JSON values named '{}'", what_, key));
  json_[key] = encode_json(value, fmt::format("{}: JSON value '{}'", what_, key));
}

void StateWriter::tensor(TensorInfo info, ReadAt read) { add(std::move(info), std::move(read)); }

void StateWriter::tensor(TensorInfo info, std::span<const std::byte> data) {
  check_tensor(info, what_);
  if (info.bytes() != data.size())
    throw CheckpointError(fmt::format("{}: tensor '{}' has {} of data, but its shape requires {}", what_, info.name,
                                      counted(data.size(), "byte"), info.bytes()));
  add(std::move(info), data);
}

void StateWriter::add(TensorInfo info, Source source) {
  check_tensor(info, what_);
  if (!names_.insert(info.name).second)
    throw CheckpointError(fmt::format("{} saves two tensors named '{}'", what_, info.name));
  tensors_.push_back(std::move(info));
  sources_.push_back(std::move(source));
}

std::string StateWriter::json_text() const { return json_.dump(1) + "\n"; }

std::vector<TensorInfo> StateWriter::in_layout_order() const {
  std::vector<TensorInfo> ordered;
  for (const std::size_t i : layout_order(tensors_)) ordered.push_back(tensors_[i]);
  return ordered;
}

std::uint64_t StateWriter::tensors_size() const {
  std::uint64_t size = safetensors_head(in_layout_order()).size();
  for (const TensorInfo& info : tensors_) size += info.bytes();
  return size;
}

void StateWriter::stream_tensors(Sink& sink) const {
  sink.write(safetensors_head(in_layout_order()));
  std::vector<std::byte> buffer;
  for (const std::size_t i : layout_order(tensors_)) {
    if (const auto* data = std::get_if<std::span<const std::byte>>(&sources_[i])) {
      sink.write(*data);
      continue;
    }
    const std::size_t size = tensors_[i].bytes();
    buffer.resize(std::max(buffer.size(), std::min(size, kWriteChunk)));
    for (std::size_t offset = 0; offset < size; offset += kWriteChunk) {
      const auto chunk = std::span(buffer).first(std::min(kWriteChunk, size - offset));
      std::get<ReadAt>(sources_[i])(offset, chunk);
      sink.write(chunk);
    }
  }
}

}  // namespace adaptdl::checkpoint
