#include "parallel/reducer_setup.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <exception>
#include <string_view>
#include <unordered_set>

#include "adaptdl/error.h"
#include "group/process_group.h"

namespace adaptdl::internal {

at::ScalarType compressed_type(const std::string& name, GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return at::kFloat;
    case GradientCompression::kFp16:
      return at::kHalf;
    case GradientCompression::kBf16:
      return at::kBFloat16;
  }
  throw UsageError(fmt::format("'{}': invalid DataParallelOptions::gradient_compression", name));
}

void check_compression(const std::string& name, const compat::ReducerOptions& options, at::Device device) {
  if (options.compression == at::kFloat) return;
  std::vector<at::Tensor> probe{at::ones({1}, at::TensorOptions(device).dtype(options.compression))};
  try {
    process_group_ptr()->allreduce(probe)->wait();
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    if (text.find("calar type") == text.npos && text.find("ata type") == text.npos) throw;
    throw UsageError(
        fmt::format("'{}': the backend of this LibTorch cannot add {} gradients; choose another "
                    "DataParallelOptions::gradient_compression",
                    name, c10::toString(options.compression)));
  }
}

std::vector<bool> sparse_params(const torch::nn::Module& model, const std::vector<at::Tensor>& params) {
  std::unordered_set<const void*> sparse;
  for (const auto& module : model.modules()) {
    if (const auto* embedding = module->as<torch::nn::EmbeddingImpl>(); embedding && embedding->options.sparse())
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    if (const auto* bag = module->as<torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse())
      sparse.insert(bag->weight.unsafeGetTensorImpl());
  }
  std::vector<bool> result;
  for (const auto& param : params) result.push_back(sparse.contains(param.unsafeGetTensorImpl()));
  return result;
}

}  // namespace adaptdl::internal
