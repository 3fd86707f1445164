// Scaling rules determine by how much the learning rate grows when a step uses a larger batch size than the initial
// batch size.
//
//   adaptdl::Adaptive<torch::optim::SGD> optimizer(net->parameters(), 0.1);
//   adaptdl::AdaptiveDataParallel model(net, optimizer);   // AdaScale; AdamScale for Adam and AdamW
//   ...
//   optimizer.step();                                             // with the scaled learning rate, for this step only
//
// The learning rates in the optimizer's options always apply to the initial batch size: the program and its LR
// schedulers read and set them as if the batch size never changed. A rule's factors apply only during a step.
//
// `scale` is the step's total batch size divided by the loader's initial batch size.
// Threading: only the training thread may use these classes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

namespace adaptdl {

class DataParallel;
class ScalingRuleBase;

namespace internal {

// The interface through which a scaling rule takes over an optimizer's step.
class RuledOptimizer {
 public:
  virtual ~RuledOptimizer() = default;
  // Runs the optimizer's own step.
  virtual at::Tensor plain_step(torch::optim::Optimizer::LossClosure closure) = 0;
  // Returns the optimizer's type without this wrapper.
  virtual const std::type_info& plain_type() const noexcept = 0;
  ScalingRuleBase* rule = nullptr;
};

// Clears the gradients. The next backward pass creates new ones, which costs less than adding to zeros.
void clear_gradients(torch::optim::Optimizer& optimizer);

}  // namespace internal

// A LibTorch optimizer, or a class derived from one, whose step() follows the scaling rule of the AdaptiveDataParallel
// to which it is given. Until then, and in all other respects, it behaves like `Base`.
template <class Base>
class Adaptive : public Base, public internal::RuledOptimizer {
 public:
  using Base::Base;
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override;
  at::Tensor plain_step(torch::optim::Optimizer::LossClosure closure) override {
    return Base::step(std::move(closure));
  }
  const std::type_info& plain_type() const noexcept override {
    return typeid(*this) == typeid(Adaptive) ? typeid(Base) : typeid(*this);
  }
  // Clears the gradients. The next backward pass creates new ones, which costs less than adding to zeros.
  void zero_grad() { internal::clear_gradients(*this); }
};

// The base class of scaling rules. To use your own rule, set DataParallelOptions::scaling_rule. A program whose
// optimizer is not Adaptive calls the rule's step() instead of the optimizer's.
class ScalingRuleBase {
 public:
  virtual ~ScalingRuleBase() = default;

  // Called by AdaptiveDataParallel, which must outlive the use of the rule. An override must call this function first.
  // Throws UsageError if another model already uses the rule.
  virtual void initialize(DataParallel& adp, torch::optim::Optimizer& optimizer);

  // Returns the factors for the learning rates at this scale: one per parameter group, or a single factor for all of
  // them. Called once per step, on every replica, after the step's gradients have been added to the noise scale.
  virtual std::vector<double> scale_lr(double scale) = 0;

  // Takes one optimizer step with the scaled learning rates, and adds the step's gain to the progress. Does nothing
  // while gradients accumulate. Throws UsageError before `initialize`.
  virtual at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  // Clears the gradients, except those accumulated for the coming step.
  virtual void zero_grad();

 protected:
  // Returns the model. Throws UsageError before `initialize`.
  DataParallel& adp() const;

 private:
  DataParallel* adp_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
};

// AdaScale SGD (Johnson et al., ICML 2020), the default rule. The factor of each parameter group is its gain (var +
// sqr) / (var / scale + sqr), between 1 and `scale`.
class AdaScale : public ScalingRuleBase {
 public:
  std::vector<double> scale_lr(double scale) override;
};

// The factor is the square root of AdaScale's gain, for optimizers that divide by the gradient's root mean square. It
// is the default for Adam and AdamW; with these two, the noise scale is measured on preconditioned gradients.
class AdamScale : public AdaScale {
 public:
  std::vector<double> scale_lr(double scale) override;
};

// The factor is `scale` itself (Goyal et al., 2017).
class LinearScale : public ScalingRuleBase {
 public:
  std::vector<double> scale_lr(double scale) override;
};

// The factor is the square root of `scale` (Krizhevsky, 2014).
class SqrtScale : public ScalingRuleBase {
 public:
  std::vector<double> scale_lr(double scale) override;
};

// Linear-epoch gradual warm-up (You et al., 2019). The factor is the square root of `scale`, after a linear warm-up
// over base_warmup_epochs x scale epochs. An epoch is measured in scale-invariant iterations: data_size / initial batch
// size. The rule's step() works only inside a loader's loop.
class LEGWScale : public ScalingRuleBase {
 public:
  // `base_warmup_epochs`: number of warm-up epochs at the initial batch size; 0 for no warm-up. `data_size`: number of
  // samples in the dataset. Throws UsageError if base_warmup_epochs is negative or not finite, or if data_size is 0.
  LEGWScale(double base_warmup_epochs, std::size_t data_size);
  std::vector<double> scale_lr(double scale) override;

 private:
  double base_warmup_epochs_;
  std::size_t data_size_;
};

template <class Base>
at::Tensor Adaptive<Base>::step(torch::optim::Optimizer::LossClosure closure) {
  return rule ? rule->step(std::move(closure)) : plain_step(std::move(closure));
}

}  // namespace adaptdl
