// Adadelta, which LibTorch's C++ library lacks. Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method",
// https://arxiv.org/abs/1212.5701; the update and the defaults are those of torch.optim.Adadelta.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

namespace adaptdl {

// Options of Adadelta, for all parameters or for a group. As in LibTorch, each is read and set by functions of its
// name: `AdadeltaOptions().rho(0.95)`.
struct AdadeltaOptions : torch::optim::OptimizerCloneableOptions<AdadeltaOptions> {
  // Sets the learning rate; the others have their defaults.
  AdadeltaOptions(double lr = 1.0) : lr_(lr) {}  // NOLINT: converts from a number, as LibTorch's options do
  TORCH_ARG(double, lr) = 1.0;                   // factor of the update
  TORCH_ARG(double, rho) = 0.9;                  // decay of the two running averages, in [0, 1]
  TORCH_ARG(double, eps) = 1e-6;                 // added under the roots
  TORCH_ARG(double, weight_decay) = 0;           // L2 penalty

 public:
  double get_lr() const override { return lr_; }
  void set_lr(const double value) override { lr_ = value; }
};

// What Adadelta keeps of a parameter.
struct AdadeltaParamState : torch::optim::OptimizerCloneableParamState<AdadeltaParamState> {
  TORCH_ARG(int64_t, step) = 0;          // steps done
  TORCH_ARG(torch::Tensor, square_avg);  // running average of squared gradients
  TORCH_ARG(torch::Tensor, acc_delta);   // running average of squared updates
};

class Adadelta : public torch::optim::Optimizer {
 public:
  // An optimizer of one group of parameters. Throws UsageError on options out of range.
  explicit Adadelta(std::vector<torch::Tensor> params, AdadeltaOptions defaults = {});
  // An optimizer of several groups; those without options of their own have `defaults`. Throws UsageError on options
  // out of range.
  explicit Adadelta(std::vector<torch::optim::OptimizerParamGroup> groups, AdadeltaOptions defaults = {});

  // Updates the parameters that have a gradient. Throws UsageError on a sparse gradient. Returns the closure's loss.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace adaptdl
