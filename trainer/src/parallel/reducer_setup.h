// Translates AdaptiveDataParallel's options for c10d::Reducer.
#pragma once

#include <string>
#include <vector>

#include "adaptdl/torch/parallel.h"
#include "support/torch_compat.h"

namespace adaptdl::internal {

// Returns the type in which gradients are summed. kFloat stands for the gradients' own type. `name`: the name of the
// state, for the error message.
at::ScalarType compressed_type(const std::string& name, GradientCompression compression);

// Throws UsageError if the backend cannot sum gradients of the compressed type. This is a collective call.
void check_compression(const std::string& name, const compat::ReducerOptions& options, at::Device device);

// Returns, for each parameter, whether its gradients are sparse: true for embeddings with the option `sparse`.
std::vector<bool> sparse_params(const torch::nn::Module& model, const std::vector<at::Tensor>& params);

}  // namespace adaptdl::internal
