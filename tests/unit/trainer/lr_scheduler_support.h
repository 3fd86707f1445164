// Shared by the tests of LR schedulers: a parameter, and the learning rate of an optimizer.
#pragma once

#include <torch/torch.h>

#include <cstddef>

namespace lr_scheduler_support {

namespace optim = torch::optim;

inline at::Tensor parameter() { return torch::zeros({1}).requires_grad_(); }

inline double lr_of(optim::Optimizer& optimizer, std::size_t group) {
  return optimizer.param_groups()[group].options().get_lr();
}

}  // namespace lr_scheduler_support
