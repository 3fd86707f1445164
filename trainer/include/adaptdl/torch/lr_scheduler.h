// Learning-rate schedulers that LibTorch lacks, with the same formulas as PyTorch's schedulers in Python.
//
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   adaptdl::CosineAnnealingLR cosine(optimizer, 90);
//   adaptdl::LinearWarmup scheduler(optimizer, cosine, {.steps = 5});
//   adaptdl::AdaptiveDataParallel model(net, optimizer, scheduler);
//   ...
//   scheduler.step();   // once per epoch, after its last loop over data
//
// A schedule computes each parameter group's rate at a position from the group's base rate, which is the rate that the
// group had when the scheduler was created. step() advances the position by one, in a unit of the caller's choice, such
// as an epoch or a step. After n calls, the rates equal those of the Python scheduler after n calls. (LibTorch's own
// StepLR lags by one: its first call changes nothing.) step_to() moves to any position, so that a schedule in epochs
// can also be followed within an epoch, regardless of the number of steps per epoch at the current batch size.
//
// Scaling rules: the rates in the optimizer apply to the initial batch size, and schedulers read and set only these
// rates.
//
// Restarts: the scheduler given to AdaptiveDataParallel is checkpointed with the model. The checkpoint contains its
// position, its base rates and the rest of its state, bit for bit, but not the arguments of its constructor: from the
// next step on, the arguments in the program apply.
//
// Errors: the constructors throw UsageError for parameters out of range.
// Lifetime: the optimizer, and a wrapped scheduler, must outlive the scheduler.
// Threading: only the training thread may use schedulers, in the same way on all replicas.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace adaptdl {

namespace internal {

// A scheduler that can save and load its state.
class SaveableScheduler {
 public:
  virtual ~SaveableScheduler() = default;
  // Returns the scheduler's type in checkpoints. A scheduler loads only the state of a scheduler of the same type.
  virtual std::string type() const = 0;
  virtual nlohmann::json save() const = 0;
  // Returns why `saved`, the state of a scheduler of this type, does not fit this scheduler, or "" if it fits.
  virtual std::string misfit(const nlohmann::json& saved) const = 0;
  // REQUIRES that `saved` fits.
  virtual void load(const nlohmann::json& saved) = 0;
};

}  // namespace internal

// The base class of schedulers in closed form. For your own scheduler, derive from it, override rate() and type(), and
// call step_to(0) in the constructor if the schedule does not begin at the base rates.
class LRSchedule : public torch::optim::LRScheduler, public internal::SaveableScheduler {
 public:
  // Sets the rates for `position`, >= 0, from which step() continues. Throws UsageError if a parameter group was added
  // to the optimizer after the scheduler was created.
  virtual void step_to(double position);
  // Returns the position for which the rates in the optimizer were set.
  double position() const noexcept { return position_; }
  // Returns the rates in the optimizer, one per parameter group.
  std::vector<double> last_lrs() const { return get_current_lrs(); }

  nlohmann::json save() const override;
  std::string misfit(const nlohmann::json& saved) const override;
  void load(const nlohmann::json& saved) override;

 protected:
  // Starts at position 0, with the optimizer's rates as base rates.
  explicit LRSchedule(torch::optim::Optimizer& optimizer);
  // Returns the rate of a parameter group whose base rate is `base`.
  virtual double rate(double position, std::size_t group, double base) const = 0;
  // Sets the rates, and anything else that the schedule controls, to the values at `position`.
  virtual void apply(double position);
  // Returns the optimizer given to the constructor.
  torch::optim::Optimizer& optimizer() const noexcept { return optimizer_; }

 private:
  std::vector<double> get_lrs() final;

  torch::optim::Optimizer& optimizer_;
  std::vector<double> base_lrs_;
  double position_ = 0;
};

// The rate is base x factor(position).
class LambdaLR final : public LRSchedule {
 public:
  // Starts with the rates for factor(0).
  LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(double position)> factor);
  std::string type() const override { return "LambdaLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  std::function<double(double)> factor_;
};

// The rate is base x gamma ^ (number of milestones reached).
class MultiStepLR final : public LRSchedule {
 public:
  // `milestones`: positions, in any order. If a position is given twice, the rate is multiplied by gamma twice.
  MultiStepLR(torch::optim::Optimizer& optimizer, std::vector<double> milestones, double gamma = 0.1);
  std::string type() const override { return "MultiStepLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  std::vector<double> milestones_;
  double gamma_;
};

// The rate is base x gamma ^ position.
class ExponentialLR final : public LRSchedule {
 public:
  // `gamma`: the factor from each position to the next, above 0.
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma);
  std::string type() const override { return "ExponentialLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  double gamma_;
};

// The rate follows half a cosine from the base rate at 0 to `eta_min` at `t_max` (Loshchilov and Hutter, 2017, without
// restarts), then rises again, and so on.
class CosineAnnealingLR final : public LRSchedule {
 public:
  // `t_max` must be above 0.
  CosineAnnealingLR(torch::optim::Optimizer& optimizer, double t_max, double eta_min = 0);
  std::string type() const override { return "CosineAnnealingLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  double t_max_, eta_min_;
};

// Options of OneCycleLR.
struct OneCycleOptions {
  // The highest rate: one value for all parameter groups, or one for each. Base rates have no effect.
  std::vector<double> max_lr;
  // Length of the cycle, >= 1. The cycle ends at position total_steps - 1, after which the rates stay at their lowest.
  // (Python's scheduler raises an error after that, but an elastic job may take more steps than planned.)
  double total_steps = 0;
  double pct_start = 0.3;            // fraction of the cycle, 0 to 1, in which the rates rise
  bool linear = false;               // use straight lines instead of half cosines
  bool cycle_momentum = true;        // whether momentum (Adam's beta1) moves in the opposite direction
  double base_momentum = 0.85;       // momentum at the highest rate
  double max_momentum = 0.95;        // momentum at the lowest rate
  double div_factor = 25;            // max_lr / first rate
  double final_div_factor = 10'000;  // first rate / last rate
  bool three_phase = false;          // fall to the first rate as fast as the rates rose, and then to the last
};

// The 1cycle policy (Smith and Topin, 2018): the rate rises from a low value to the highest, then falls to a far lower
// one. Usually, a position is a step.
class OneCycleLR final : public LRSchedule {
 public:
  // Also throws UsageError if momentum is cycled and the optimizer is not SGD, RMSprop, Adam or AdamW.
  OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleOptions options);
  std::string type() const override { return "OneCycleLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  void apply(double position) override;
  // Returns the value at `position` of a curve that rises from `low` to `high`, falls again, and ends at `last`.
  double along(double position, double low, double high, double last) const;
  OneCycleOptions options_;
};

// Options of LinearWarmup.
struct LinearWarmupOptions {
  double steps = 0;               // position at which the base rates are reached; 0: immediately
  double start_factor = 1.0 / 3;  // factor applied to the base rates at position 0, from 0 to 1
};

// Raises the rates linearly to the base rates. After that, the rates stay constant or another scheduler takes over.
class LinearWarmup final : public LRSchedule {
 public:
  // Keeps the base rates after the warm-up.
  LinearWarmup(torch::optim::Optimizer& optimizer, LinearWarmupOptions options);
  // `then` stays at its initial position until the warm-up ends. After that, this scheduler steps `then`, and the
  // program must not. `then` is saved with this scheduler, so pass only this scheduler to AdaptiveDataParallel. `then`
  // may be a LibTorch scheduler. If `then` is a ReduceLROnPlateau, the program must pass the metrics to it; metrics
  // during the warm-up have no effect on the rates.
  LinearWarmup(torch::optim::Optimizer& optimizer, torch::optim::LRScheduler& then, LinearWarmupOptions options);
  std::string type() const override { return "LinearWarmup"; }

  // Throws UsageError for a position after the warm-up if `then` is not an LRSchedule.
  void step_to(double position) override;
  nlohmann::json save() const override;
  std::string misfit(const nlohmann::json& saved) const override;
  void load(const nlohmann::json& saved) override;

 private:
  double rate(double position, std::size_t group, double base) const override;
  void apply(double position) override;
  LinearWarmupOptions options_;
  torch::optim::LRScheduler* then_ = nullptr;
};

// Options of ReduceLROnPlateau.
struct ReduceLROnPlateauOptions {
  bool maximize = false;             // whether a higher metric (accuracy) is better than a lower one (loss)
  double factor = 0.1;               // factor by which a reduction multiplies the rate, below 1
  int patience = 10;                 // tolerated calls without improvement
  double threshold = 1e-4;           // minimum change that is considered an improvement
  bool absolute_threshold = false;   // whether threshold is a difference rather than a fraction of the best metric
  int cooldown = 0;                  // after a reduction, number of calls in which a lack of improvement is ignored
  std::vector<double> min_lr = {0};  // lowest rate: one value for all parameter groups, or one for each
  double eps = 1e-8;                 // a reduction is skipped if it is not greater than this
};

// Reduces the rates when a metric stops improving.
class ReduceLROnPlateau final : public torch::optim::LRScheduler, public internal::SaveableScheduler {
 public:
  // Leaves the rates unchanged until a metric stops improving.
  ReduceLROnPlateau(torch::optim::Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  std::string type() const override { return "ReduceLROnPlateau"; }

  // Must be called once per epoch, with a metric that is the same on every replica, such as a value from an
  // Accumulator. The loss of a replica's own batches is not suitable. NaN is treated as no improvement.
  void step(double metric);
  // Returns the best metric so far. Before the first metric, this is infinity, or minus infinity with `maximize`.
  double best() const noexcept { return best_; }
  // Returns the rates in the optimizer, one per parameter group.
  std::vector<double> last_lrs() const { return get_current_lrs(); }

  nlohmann::json save() const override;
  std::string misfit(const nlohmann::json& saved) const override;
  void load(const nlohmann::json& saved) override;

 private:
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  bool better(double metric) const;
  void reduce();

  torch::optim::Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  int bad_ = 0, cooldown_ = 0;
};

}  // namespace adaptdl
