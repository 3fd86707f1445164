// Shared by the tests on a GPU: the devices, and a small net with its data.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <utility>

namespace gpu_support {

namespace nn = torch::nn;

inline const at::Device kGpu(at::kCUDA, 0), kCpu(at::kCPU);

inline constexpr std::int64_t kFeatures = 6;

inline std::pair<at::Tensor, at::Tensor> regression(const at::Tensor& numbers) {
  const auto angles = numbers.cpu().to(torch::kDouble).unsqueeze(1);
  const auto x = torch::sin(angles * torch::arange(1, kFeatures + 1));
  return {x.to(torch::kFloat), (x.sum(1, /*keepdim=*/true) + torch::cos(angles * 37)).to(torch::kFloat)};
}

inline nn::Sequential small_net(double dropout = 0) {
  torch::manual_seed(3);
  return nn::Sequential(nn::Linear(kFeatures, 32), nn::Tanh(), nn::Dropout(dropout), nn::Linear(32, 1));
}

}  // namespace gpu_support
