// The safetensors format: eight bytes with the length of a header, the header as JSON, and the data of all tensors
// without a gap.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

// Where the data of a tensor lies in its file: bytes [begin, end).
struct TensorPlace {
  TensorInfo info;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Bytes of an element, or 0 for an unknown dtype.
std::size_t element_size(std::string_view dtype);

// The order in which tensors are laid out: larger elements first, so that each lies aligned to its own, as loaders that
// map the file expect. Otherwise as given. Returns indices of `tensors`.
std::vector<std::size_t> layout_order(const std::vector<TensorInfo>& tensors);

// The beginning of a file for `tensors` laid out in this order: everything before the data.
std::string safetensors_head(const std::vector<TensorInfo>& tensors);

// Throws CheckpointError, which begins with `what`, if safetensors cannot name or describe the tensor so.
void check_tensor(const TensorInfo& info, const std::string& what);

// Reads and checks the head of a file. Gives the tensors in the order of their data. Throws Damage if it is not a
// safetensors file all of whose bytes belong to exactly one tensor, each of the size that its shape says.
std::vector<TensorPlace> read_safetensors_head(const Input& file);

}  // namespace adaptdl::checkpoint
