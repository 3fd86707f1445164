#include "adaptdl/torch/adadelta.h"

#include <torch/torch.h>

#include <memory>
#include <utility>

#include "adaptdl/error.h"
#include "support/torch_compat.h"

namespace adaptdl {

namespace {

void check(const AdadeltaOptions& options) {
  if (options.lr() < 0) throw UsageError("Adadelta: lr must not be negative");
  if (options.rho() < 0 || options.rho() > 1) throw UsageError("Adadelta: rho must be between 0 and 1");
  if (options.eps() < 0) throw UsageError("Adadelta: eps must not be negative");
  if (options.weight_decay() < 0) throw UsageError("Adadelta: weight_decay must not be negative");
}

AdadeltaParamState& state_of(Adadelta& optimizer, const at::Tensor& param) {
  if (auto* found = compat::find_state(optimizer, param)) return static_cast<AdadeltaParamState&>(*found);
  auto fresh = std::make_unique<AdadeltaParamState>();
  fresh->square_avg(at::zeros_like(param));
  fresh->acc_delta(at::zeros_like(param));
  compat::set_state(optimizer, param, std::move(fresh));
  return static_cast<AdadeltaParamState&>(*compat::find_state(optimizer, param));
}

void update(at::Tensor& param, AdadeltaParamState& state, const AdadeltaOptions& options) {
  auto grad = param.grad();
  if (grad.is_sparse()) throw UsageError("Adadelta does not support sparse gradients; use SGD for this parameter");
  state.step(state.step() + 1);
  if (options.weight_decay() != 0) grad = grad.add(param, options.weight_decay());
  state.square_avg().mul_(options.rho()).addcmul_(grad, grad, 1 - options.rho());
  const auto delta =
      state.acc_delta().add(options.eps()).sqrt_().div_(state.square_avg().add(options.eps()).sqrt_()).mul_(grad);
  state.acc_delta().mul_(options.rho()).addcmul_(delta, delta, 1 - options.rho());
  param.add_(delta, -options.lr());
}

}  // namespace

Adadelta::Adadelta(std::vector<torch::Tensor> params, AdadeltaOptions defaults)
    : Adadelta(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(params))},
               defaults) {}

Adadelta::Adadelta(std::vector<torch::optim::OptimizerParamGroup> groups, AdadeltaOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdadeltaOptions>(defaults)) {
  for (auto& group : param_groups()) check(static_cast<AdadeltaOptions&>(group.options()));
}

torch::Tensor Adadelta::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    at::AutoGradMode enable(true);
    loss = closure();
  }
  torch::NoGradGuard no_grad;
  for (auto& group : param_groups()) {
    const auto& options = static_cast<AdadeltaOptions&>(group.options());
    for (auto& param : group.params()) {
      if (param.grad().defined()) update(param, state_of(*this, param), options);
    }
  }
  return loss;
}

}  // namespace adaptdl
