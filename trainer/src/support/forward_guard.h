// Guards against the side effects of a forward pass.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "support/rng_state.h"

namespace adaptdl::internal {

// Restores the random number generators and a module's buffers when destroyed. Autograd graphs that saved the buffers
// stay valid.
class ForwardGuard {
 public:
  explicit ForwardGuard(const torch::nn::Module& module) {
    for (const auto& buffer : module.buffers()) buffers_.emplace_back(buffer, buffer.detach().clone());
  }
  ~ForwardGuard() {
    generators_.restore();
    const c10::NoGradGuard no_grad;
    for (const auto& [buffer, content] : buffers_) {
      if (buffer.sizes() != content.sizes()) buffer.resize_(content.sizes());
      // variable_data() keeps the buffer's version unchanged. All buffers are copied, because the version does not
      // reveal every write.
      buffer.variable_data().copy_(content);
    }
  }
  ForwardGuard(const ForwardGuard&) = delete;
  ForwardGuard& operator=(const ForwardGuard&) = delete;

 private:
  const RngStates generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffers, with copies of their contents
};

// While the object exists, autocast caches no casts: a cast made without gradients must not be reused in a pass that
// requires them.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  const bool before_ = at::autocast::is_autocast_cache_enabled();
};

}  // namespace adaptdl::internal
