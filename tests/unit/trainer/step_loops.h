// A small model, and loader loops whose steps are chosen by a test.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "loop/batch_size_choice.h"

namespace testing {

inline constexpr std::size_t kLocalBatch = 4;

inline torch::nn::Sequential small_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

inline at::Tensor inputs(int rank, int batch) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * batch + rank));
  return torch::randn({static_cast<std::int64_t>(kLocalBatch), 4});
}

inline at::Tensor flat(const torch::nn::Module& model) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : model.parameters()) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

// Runs body(batch) in the loop of a loader whose steps have `accumulation` + 1 batches on each replica.
template <class Body>
void loop(int replicas, int accumulation, int steps, Body body) {
  const auto total = kLocalBatch * static_cast<std::size_t>(replicas * (accumulation + 1));
  adaptdl::AdaptiveDataLoaderHelper loader(total);
  loader.autoscale_batch_size(total, {.max = kLocalBatch}, true);
  for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(1)) {
    const auto context = loader.context();
    loader.skipdone();
    loader.sync_local_bsz();
    for (int batch = 0; batch < steps * (accumulation + 1); ++batch) {
      const auto profile = loader.profile(false);
      body(batch);
      loader.advance();
    }
  }
}

// Runs body(step) in the loop of a loader with batch size 8 on one replica. A step at scale S has 8 * S samples.
template <class Body>
void loop_at_scales(const std::vector<int>& scales, Body body) {
  adaptdl::AdaptiveDataLoaderHelper loader(8);
  loader.autoscale_batch_size(1024);
  adaptdl::internal::set_batch_size_decider([&](std::uint64_t step) {
    const auto next = std::min<std::size_t>(step + 1, scales.size() - 1);
    return std::make_pair(static_cast<std::size_t>(8 * scales[next]), 0);
  });
  for ([[maybe_unused]] const int epoch : adaptdl::remaining_epochs_until(1)) {
    const auto context = loader.context();
    loader.skipdone();
    loader.sync_local_bsz();
    for (std::size_t step = 0; step < scales.size(); ++step) {
      const auto profile = loader.profile(false);
      if (loader.batch_size_changed()) loader.sync_local_bsz();
      body(static_cast<int>(step));
      loader.advance();
    }
  }
}

}  // namespace testing
