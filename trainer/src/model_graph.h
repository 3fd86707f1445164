// The graph of a model, as a trace of its forward pass.
//
// LibTorch's tracer knows no modules of C++. So a parameter is in the group of its module, an operator in the innermost
// group that has the parameters that it uses, and one that uses none in the innermost group that has the operators
// before and after it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <vector>

#include "summary_writer_messages.h"

namespace adaptdl::internal {

// Runs `forward` once, which gets copies of `inputs` and returns the tensors of the output, with the model in
// evaluation mode and without gradients. Modes and buffers of the model and the random generators are as before
// afterwards. Throws UsageError if `forward` fails, or uses a tensor that requires a gradient and is neither an input
// nor registered in the model.
std::vector<GraphNode> trace_model(
    torch::nn::Module& model, const std::vector<at::Tensor>& inputs,
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& forward);

}  // namespace adaptdl::internal
