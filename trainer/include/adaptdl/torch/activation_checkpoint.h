// Activation checkpointing, which trades time for memory: a part of a model keeps only its inputs in the forward pass,
// and recomputes its activations in the backward pass (Chen et al., "Training Deep Nets with Sublinear Memory Cost",
// 2016). The PyTorch counterpart is torch.utils.checkpoint.
//
//   for (auto& block : blocks) x = checkpoint_activations(block, x);   // was: x = block(x)
//
// The gradients equal those of a plain pass: operations such as dropout draw the same random numbers, operations
// compute in the same types under Autocast, and buffers, such as the running statistics of batch normalization, are
// updated only once. The part's forward pass must have no other side effects, and must not read a buffer that it
// modifies (spectral normalization does this). All replicas must checkpoint the same parts, because the forward pass of
// a part may make collective calls. With LibTorch 2, a hook on one of the part's parameters runs twice.
//
// Threading: only the training thread may call checkpoint_activations. If LibTorch runs a backward pass in its own
// threads, the parts also run in those threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace adaptdl {

namespace internal {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Returns the result of `forward`, which must not use parameters that require gradients, except those of `module`.
std::vector<at::Tensor> recompute_in_backward(std::shared_ptr<torch::nn::Module> module, const TensorFunction& forward,
                                              const std::vector<at::Tensor>& inputs);

template <class Model>
std::shared_ptr<torch::nn::Module> shared_module(const Model& model) {
  if constexpr (requires { model.ptr(); }) {
    return model.ptr();
  } else {
    return model;
  }
}

}  // namespace internal

// Returns model->forward(inputs...), whose activations are recomputed in the backward pass. `Model` is a module holder
// (TORCH_MODULE) or a shared_ptr to a module. The module is kept alive until the backward pass. `forward` accepts
// tensors, which may be undefined, and returns a tensor or a vector of tensors. With gradients disabled, this is a
// plain forward pass. A backward pass with create_graph, which second derivatives require, throws UsageError.
template <class Model, class... Tensors>
requires(std::is_convertible_v<const Tensors&, const at::Tensor&>&&...) auto checkpoint_activations(
    Model model, const Tensors&... inputs) {
  using Result = std::remove_cvref_t<decltype(model->forward(inputs...))>;
  constexpr bool one = std::is_same_v<Result, at::Tensor>;
  static_assert(one || std::is_same_v<Result, std::vector<at::Tensor>>,
                "checkpoint_activations: forward must return at::Tensor or std::vector<at::Tensor>");
  auto module = internal::shared_module(model);
  const auto forward = [model](const std::vector<at::Tensor>& tensors) mutable -> std::vector<at::Tensor> {
    return [&]<std::size_t... i>(std::index_sequence<i...>) -> std::vector<at::Tensor> {
      if constexpr (one) {
        return {model->forward(tensors[i]...)};
      } else {
        return model->forward(tensors[i]...);
      }
    }
    (std::index_sequence_for<Tensors...>{});
  };
  auto outputs = internal::recompute_in_backward(std::move(module), forward, {inputs...});
  if constexpr (one) {
    return outputs[0];
  } else {
    return outputs;
  }
}

}  // namespace adaptdl
