// Creates the graph of a model by tracing its forward pass.
//
// LibTorch's tracer is not aware of C++ modules. Therefore, a parameter is placed in the group of its module, an
// operator in the innermost group that contains the parameters it uses, and an operator without parameters in the
// innermost group that contains the operators before and after it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <vector>

#include "tensorboard/summary_writer_messages.h"

namespace adaptdl::internal {

// Runs `forward` once, with the model in evaluation mode and without gradients. `forward` receives copies of `inputs`
// and returns the tensors in the output. The model's modes and buffers and the random number generators are restored
// afterwards. Throws UsageError if `forward` fails, or uses a tensor that requires a gradient and is neither an input
// nor registered in the model.
std::vector<GraphNode> trace_model(
    torch::nn::Module& model, const std::vector<at::Tensor>& inputs,
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& forward);

}  // namespace adaptdl::internal
