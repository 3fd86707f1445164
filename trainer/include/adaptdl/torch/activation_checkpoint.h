// Activation checkpointing, which needs less memory and more time: a part of a model keeps only its inputs in the
// forward pass, and computes its activations again in the backward pass (Chen et al., "Training Deep Nets with
// Sublinear Memory Cost", 2016). In PyTorch this is torch.utils.checkpoint.
//
//   for (auto& block : blocks) x = checkpoint_activations(block, x);   // was: x = block(x)
//
// Gradients are those of the plain pass: random numbers, such as those of dropout, are the same, operations compute in
// the same types under Autocast, and buffers, such as the running statistics of batch normalization, change once. The
// forward pass of the part must have no other effects, and must not read a buffer that it changes, as spectral
// normalization does. All replicas must checkpoint the same parts, because some may communicate. With LibTorch 2, a
// hook on a parameter of the part runs twice.
//
// Threading: for the training thread. If LibTorch runs a backward pass in threads of its own, the parts run there too.
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

// Returns the result of `forward`, which uses the parameters of `module` and no others that need gradients.
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

// Returns model->forward(inputs...), whose activations are computed again in the backward pass. `Model` is a module
// holder (TORCH_MODULE) or a shared_ptr to a module, which is kept until then. `forward` accepts tensors, which may be
// undefined, and returns one or a vector of them. With gradients disabled, this is a plain forward pass. A backward
// pass with create_graph, as for second derivatives, throws UsageError.
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
