// Translates options of AdaptiveDataParallel for c10d::Reducer.
#pragma once

#include <string>
#include <vector>

#include "adaptdl/torch/parallel.h"
#include "torch_compat.h"

namespace adaptdl::internal {

// The type in which gradients are summed; kFloat: their own. `name`: the name of the state, for the error.
at::ScalarType compressed_type(const std::string& name, GradientCompression compression);

// Throws UsageError if the backend cannot sum gradients of the type to which they are compressed. A collective call.
void check_compression(const std::string& name, const compat::ReducerOptions& options, at::Device device);

// Which parameters get sparse gradients: those of embeddings with the option `sparse`.
std::vector<bool> sparse_params(const torch::nn::Module& model, const std::vector<at::Tensor>& params);

}  // namespace adaptdl::internal
