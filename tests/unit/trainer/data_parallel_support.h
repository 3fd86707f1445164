// Shared by the tests of AdaptiveDataParallel: a small model of any width, its inputs and its loss.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace data_parallel_support {

namespace nn = torch::nn;

inline nn::Sequential small_model(std::int64_t width = 8) {
  torch::manual_seed(3);
  return nn::Sequential(nn::Linear(4, width), nn::Tanh(), nn::Linear(width, 2));
}

inline at::Tensor inputs(int rank, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank));
  return torch::randn({6, 4});
}

inline at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

}  // namespace data_parallel_support
