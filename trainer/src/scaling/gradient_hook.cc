#include "scaling/gradient_hook.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <memory>

namespace adaptdl {

GradientHook::GradientHook(const at::Tensor& param, std::function<void(const at::Tensor& gradient)> call)
    : node_(torch::autograd::impl::grad_accumulator(param)),
      key_(node_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [call = std::move(call)](const torch::autograd::variable_list& outputs,
                                   const torch::autograd::variable_list& gradients) {
            call(gradients.empty() ? at::Tensor() : gradients[0]);
            return outputs;
          }))) {}

GradientHook::~GradientHook() { node_->del_post_hook(key_); }

}  // namespace adaptdl
