// The safetensors format: eight bytes with the length of the header, the header as JSON, and the data of all tensors
// without gaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint/files.h"

namespace adaptdl::checkpoint {

// The position of a tensor's data in its file: bytes [begin, end).
struct TensorPlace {
  TensorInfo info;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Returns the bytes per element, or 0 for an unknown dtype.
std::size_t element_size(std::string_view dtype);

// Returns the order in which tensors are laid out, as indices into `tensors`: larger elements first, so that each
// tensor is aligned to its element size, as loaders that map the file expect. Tensors with elements of the same size
// keep their order.
std::vector<std::size_t> layout_order(const std::vector<TensorInfo>& tensors);

// Returns everything that precedes the data in a file that contains `tensors` in this order.
std::string safetensors_head(const std::vector<TensorInfo>& tensors);

// Throws CheckpointError, whose message begins with `what`, if safetensors cannot represent the tensor's name, dtype or
// shape.
void check_tensor(const TensorInfo& info, const std::string& what);

// Reads and checks the head of a file. Returns the tensors in the order of their data. Throws Damage unless the head is
// valid, every byte of data belongs to exactly one tensor, and the sizes match the shapes.
std::vector<TensorPlace> read_safetensors_head(const Input& file);

}  // namespace adaptdl::checkpoint
