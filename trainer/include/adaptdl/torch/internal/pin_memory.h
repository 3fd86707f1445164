// Moves the tensors of a batch to page-locked memory. This is internal to the data loaders.
#pragma once

#include <ATen/core/Tensor.h>

#include "adaptdl/torch/internal/each_tensor.h"

namespace adaptdl::internal {

// Returns `tensor` in page-locked memory if it is dense and on the CPU and LibTorch sees a GPU. Otherwise, returns it
// unchanged.
at::Tensor pinned(const at::Tensor& tensor);

// Pins the tensors in `batch`, and calls pin_memory() for each value in it whose type has this function in its
// namespace.
template <class T>
void pin(T& batch) {
  const auto use = [](at::Tensor& tensor) { tensor = pinned(tensor); };
  const auto other = [](auto& value) requires requires { pin_memory(value); }
  { pin_memory(value); };
  each_tensor(batch, use, other);
}

}  // namespace adaptdl::internal
