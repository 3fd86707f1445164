// A hook that runs when a backward pass has added a gradient to a parameter. Hooks run in the order of their creation.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace adaptdl {

class GradientHook {
 public:
  // `call` receives the gradient that was added, which is undefined if it is zero.
  GradientHook(const at::Tensor& param, std::function<void(const at::Tensor& gradient)> call);
  ~GradientHook();
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

 private:
  // The node that accumulates the parameter's gradient, which exists as long as it is referenced: a std::shared_ptr or,
  // since LibTorch 2.15, a c10::intrusive_ptr.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>())) node_;
  std::uintptr_t key_;
};

}  // namespace adaptdl
