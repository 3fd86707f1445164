// The writer to which a state saves itself. It only collects the JSON values and the sources of the tensors. The values
// and the tensors are then each streamed to a file, or to memory from which they are sent to rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

class StateWriter : public Writer {
 public:
  // `what` precedes the error texts: "state 'NAME'".
  explicit StateWriter(std::string what) : what_(std::move(what)) {}

  void json(std::string_view name, nlohmann::json value) override;
  void tensor(TensorInfo info, ReadAt read) override;
  void tensor(TensorInfo info, std::span<const std::byte> data) override;

  bool has_json() const noexcept { return !json_.empty(); }
  bool has_tensors() const noexcept { return !tensors_.empty(); }
  std::string json_text() const;
  // Returns the number of bytes that stream_tensors writes.
  std::uint64_t tensors_size() const;
  // Writes all tensors in the safetensors format. Calls each tensor's ReadAt; buffers one chunk at a time.
  void stream_tensors(Sink& sink) const;

 private:
  using Source = std::variant<ReadAt, std::span<const std::byte>>;
  void add(TensorInfo info, Source source);
  std::vector<TensorInfo> in_layout_order() const;

  std::string what_;
  nlohmann::json json_ = nlohmann::json::object();
  std::vector<TensorInfo> tensors_;
  std::vector<Source> sources_;  // one per tensor
  std::set<std::string> names_;  // of the tensors
};

}  // namespace adaptdl::checkpoint
