// Saves tensors of any device and layout to checkpoints, and loads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "adaptdl/checkpoint.h"

namespace adaptdl {

// Returns the safetensors name of a tensor's element type. Throws checkpoint::CheckpointError if the type has none.
std::string dtype_name(const at::Tensor& tensor);

// Streams the tensor to `writer`, which reads it until the saving call returns. The tensor must stay valid until then.
// Tensors that are on a GPU, sparse (these are written dense) or not in row-major order are copied, one at a time.
void save_tensor(checkpoint::Writer& writer, const std::string& name, const at::Tensor& tensor);

// Throws checkpoint::CheckpointError unless the checkpoint contains `name` with the type and shape of `tensor`.
void check_tensor(const checkpoint::Reader& reader, const std::string& name, const at::Tensor& tensor);

// Reads `name` into the existing `tensor`. REQUIRES that check_tensor has succeeded.
void load_tensor(const checkpoint::Reader& reader, const std::string& name, at::Tensor tensor);

// Reads `name` as a new tensor on the device of `like`.
at::Tensor load_new_tensor(const checkpoint::Reader& reader, const std::string& name, const at::Tensor& like);

}  // namespace adaptdl
