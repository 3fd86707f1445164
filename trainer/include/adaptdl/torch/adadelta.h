// The Adadelta optimizer, which LibTorch's C++ library lacks. Source: Zeiler, "ADADELTA: An Adaptive Learning Rate
// Method", https://arxiv.org/abs/1212.5701. The update rule and the defaults match torch.optim.Adadelta.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

namespace adaptdl {

// Options of Adadelta, for all parameters or for a group. As in LibTorch, each option has a function of the same name
// that reads or sets it: `AdadeltaOptions().rho(0.95)`.
struct AdadeltaOptions : torch::optim::OptimizerCloneableOptions<AdadeltaOptions> {
  // Sets the learning rate. The other options keep their defaults.
  AdadeltaOptions(double lr = 1.0) : lr_(lr) {}  // NOLINT: converts from a number, like LibTorch's options
  TORCH_ARG(double, lr) = 1.0;                   // multiplier of the update
  TORCH_ARG(double, rho) = 0.9;                  // decay of the two running averages, in [0, 1]
  TORCH_ARG(double, eps) = 1e-6;                 // added under the square roots
  TORCH_ARG(double, weight_decay) = 0;           // L2 penalty

 public:
  double get_lr() const override { return lr_; }
  void set_lr(const double value) override { lr_ = value; }
};

// The state that Adadelta keeps for a parameter.
struct AdadeltaParamState : torch::optim::OptimizerCloneableParamState<AdadeltaParamState> {
  TORCH_ARG(int64_t, step) = 0;          // number of steps taken
  TORCH_ARG(torch::Tensor, square_avg);  // running average of squared gradients
  TORCH_ARG(torch::Tensor, acc_delta);   // running average of squared updates
};

class Adadelta : public torch::optim::Optimizer {
 public:
  // Creates an optimizer with one group of parameters. Throws UsageError if an option is out of range.
  explicit Adadelta(std::vector<torch::Tensor> params, AdadeltaOptions defaults = {});
  // Creates an optimizer with several groups. Groups without their own options use `defaults`. Throws UsageError if an
  // option is out of range.
  explicit Adadelta(std::vector<torch::optim::OptimizerParamGroup> groups, AdadeltaOptions defaults = {});

  // Updates the parameters that have a gradient. Returns the closure's loss. Throws UsageError for a sparse gradient.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace adaptdl
