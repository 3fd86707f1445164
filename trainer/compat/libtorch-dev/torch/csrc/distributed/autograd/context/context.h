// A replacement for a header that Debian's libtorch-dev omits, although c10d/reducer.hpp includes it. Reducer needs
// only these two names, with the ABI of the original: a shared_ptr to an incomplete class and a std::function.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <unordered_set>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
