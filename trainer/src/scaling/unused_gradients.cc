#include "scaling/unused_gradients.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>

namespace adaptdl {

namespace {

void add_over_replicas(const compat::ProcessGroupPtr& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group->allreduce(tensors)->wait();
}

// Returns the number of replicas on which each flag is set.
at::Tensor count_over_replicas(const compat::ProcessGroupPtr& group, const std::vector<bool>& flags,
                               at::Device device) {
  auto counts = at::zeros({static_cast<std::int64_t>(flags.size())});
  for (std::size_t i = 0; i < flags.size(); ++i) counts[static_cast<std::int64_t>(i)] = flags[i] ? 1 : 0;
  const auto sums = counts.to(device);
  add_over_replicas(group, sums);
  return sums.cpu();
}

}  // namespace

void average_unused(const compat::ProcessGroupPtr& group, int replicas, const std::vector<at::Tensor>& params,
                    const std::vector<bool>& unused) {
  torch::NoGradGuard no_grad;
  std::vector<bool> flags;  // whether each parameter was used in the reduced pass; then whether each has a gradient
  for (std::size_t i = 0; i < params.size(); ++i) flags.push_back(!unused[i]);
  for (const auto& param : params) flags.push_back(param.grad().defined());
  const auto used = count_over_replicas(group, flags, params[0].device()).view({2, -1});
  for (std::int64_t i = 0; i < used.size(1); ++i) {
    if (used[0][i].item<float>() > 0 || used[1][i].item<float>() == 0) continue;
    const auto& param = params[static_cast<std::size_t>(i)];
    auto& gradient = param.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(param);
    add_over_replicas(group, gradient);
    gradient.div_(replicas);
  }
}

void reduce_unused(const compat::ProcessGroupPtr& group, int replicas, const std::vector<at::Tensor>& params,
                   const std::vector<bool>& unused, const std::vector<at::Tensor>& held) {
  torch::NoGradGuard no_grad;
  std::vector<bool> flags;  // whether each parameter was used in the last batch; then whether each has a held gradient
  for (std::size_t i = 0; i < params.size(); ++i) flags.push_back(!unused[i]);
  for (const auto& gradient : held) flags.push_back(gradient.defined());
  const auto used = count_over_replicas(group, flags, params[0].device()).view({2, -1});
  for (std::int64_t i = 0; i < used.size(1); ++i) {
    if (used[1][i].item<float>() == 0) continue;
    const auto param = static_cast<std::size_t>(i);
    auto gradient = held[param].defined() ? held[param] : at::zeros_like(params[param]);
    add_over_replicas(group, gradient);
    gradient.div_(replicas);
    auto& mean = params[param].mutable_grad();
    if (used[0][i].item<float>() > 0 && mean.defined()) {
      mean.add_(gradient);
    } else {
      mean = gradient;
    }
  }
}

}  // namespace adaptdl
