// Learning-rate schedulers that LibTorch lacks, with the formulas of PyTorch's Python ones.
//
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   adaptdl::CosineAnnealingLR cosine(optimizer, 90);
//   adaptdl::LinearWarmup scheduler(optimizer, cosine, {.steps = 5});
//   adaptdl::AdaptiveDataParallel model(net, optimizer, scheduler);
//   ...
//   scheduler.step();   // once an epoch, behind its last loop over data
//
// A schedule gives each parameter group's rate at a position, from the rate that the group had when the scheduler was
// made: its base rate. A call of step() goes on by one; the unit is the caller's choice, an epoch or a step. After n
// calls the rates are those of the Python scheduler after as many. (LibTorch's own StepLR lags by one: its first call
// changes nothing.) step_to() goes to any position, so that a schedule in epochs can be followed within them, whatever
// the number of steps that an epoch has at the present batch size.
//
// Scaling rules: rates in the optimizer are those of the initial batch size; schedulers read and set these.
//
// Restarts: the scheduler given to AdaptiveDataParallel is checkpointed with the model: its position, base rates and
// whatever it remembers, bit for bit. Its parameters are not: the program's own are in force from the next step on.
//
// Errors: parameters out of range are a UsageError when the scheduler is made. Lifetime: the optimizer, and a wrapped
// scheduler, must outlive it. Threading: used by the training thread; on all replicas alike.
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

// A scheduler that knows what of it belongs in a checkpoint.
class SaveableScheduler {
 public:
  virtual ~SaveableScheduler() = default;
  // Its name in checkpoints: a scheduler is loaded from one of the same type only.
  virtual std::string type() const = 0;
  virtual nlohmann::json save() const = 0;
  // Why `saved`, which is of this type, does not fit this scheduler; empty if it does.
  virtual std::string misfit(const nlohmann::json& saved) const = 0;
  // REQUIRES that `saved` fits.
  virtual void load(const nlohmann::json& saved) = 0;
};

}  // namespace internal

// What the schedulers in closed form share. Derive from it for one of your own: override rate() and type(), and call
// step_to(0) in the constructor if the schedule does not begin at the base rates.
class LRSchedule : public torch::optim::LRScheduler, public internal::SaveableScheduler {
 public:
  // Sets the rates of `position`, >= 0, from which step() goes on. Throws UsageError if the optimizer has got further
  // parameter groups since the scheduler was made.
  virtual void step_to(double position);
  // The position of the rates in the optimizer.
  double position() const noexcept { return position_; }
  // The rates in the optimizer, a parameter group each.
  std::vector<double> last_lrs() const { return get_current_lrs(); }

  nlohmann::json save() const override;
  std::string misfit(const nlohmann::json& saved) const override;
  void load(const nlohmann::json& saved) override;

 protected:
  // Starts at position 0, with the optimizer's rates as base rates.
  explicit LRSchedule(torch::optim::Optimizer& optimizer);
  // The rate of a parameter group whose base rate is `base`.
  virtual double rate(double position, std::size_t group, double base) const = 0;
  // Sets what the schedule governs at `position`: the rates.
  virtual void apply(double position);
  // As given to the constructor.
  torch::optim::Optimizer& optimizer() const noexcept { return optimizer_; }

 private:
  std::vector<double> get_lrs() final;

  torch::optim::Optimizer& optimizer_;
  std::vector<double> base_lrs_;
  double position_ = 0;
};

// base x factor(position).
class LambdaLR final : public LRSchedule {
 public:
  // Begins with factor(0).
  LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(double position)> factor);
  std::string type() const override { return "LambdaLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  std::function<double(double)> factor_;
};

// base x gamma ^ milestones reached.
class MultiStepLR final : public LRSchedule {
 public:
  // `milestones`: positions, in any order; one given twice counts twice.
  MultiStepLR(torch::optim::Optimizer& optimizer, std::vector<double> milestones, double gamma = 0.1);
  std::string type() const override { return "MultiStepLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  std::vector<double> milestones_;
  double gamma_;
};

// base x gamma ^ position.
class ExponentialLR final : public LRSchedule {
 public:
  // `gamma`: the factor from each position to the next.
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma);
  std::string type() const override { return "ExponentialLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  double gamma_;
};

// Half a cosine from the base rate at 0 to `eta_min` at `t_max` (Loshchilov and Hutter, 2017, without restarts);
// beyond, back up, and so on.
class CosineAnnealingLR final : public LRSchedule {
 public:
  // `t_max` > 0.
  CosineAnnealingLR(torch::optim::Optimizer& optimizer, double t_max, double eta_min = 0);
  std::string type() const override { return "CosineAnnealingLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  double t_max_, eta_min_;
};

// Options of OneCycleLR.
struct OneCycleOptions {
  // The highest rate: one for all parameter groups, or one each. Base rates count for nothing.
  std::vector<double> max_lr;
  // Length of the cycle, >= 1: it ends at position total_steps - 1, and the rates stay at their lowest from there on
  // (where Python's throws), for an elastic job may take more steps than foreseen.
  double total_steps = 0;
  double pct_start = 0.3;            // the part of the cycle, 0 to 1, in which rates grow
  bool linear = false;               // straight lines in place of half cosines
  bool cycle_momentum = true;        // momentum, or beta1 of Adam, goes the other way
  double base_momentum = 0.85;       // at the highest rate
  double max_momentum = 0.95;        // at the lowest
  double div_factor = 25;            // max_lr / the first rate
  double final_div_factor = 10'000;  // the first rate / the last one
  bool three_phase = false;          // down to the first rate in as long as up, and only then to the last
};

// The 1cycle policy (Smith and Topin, 2018): from a low rate up to the highest, then down to a far lower one. Usually
// with a position a step.
class OneCycleLR final : public LRSchedule {
 public:
  // Throws UsageError also if momentum is to be cycled and the optimizer is none of SGD, RMSprop, Adam and AdamW.
  OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleOptions options);
  std::string type() const override { return "OneCycleLR"; }

 private:
  double rate(double position, std::size_t group, double base) const override;
  void apply(double position) override;
  // Goes from `low` to `high` and back, in the last phase to `last`.
  double along(double position, double low, double high, double last) const;
  OneCycleOptions options_;
};

// Options of LinearWarmup.
struct LinearWarmupOptions {
  double steps = 0;               // at this position the base rates are reached; 0: at once
  double start_factor = 1.0 / 3;  // of the base rates, 0 to 1, at position 0
};

// Grows the rates linearly to the base rates; then they stay, or another scheduler takes over.
class LinearWarmup final : public LRSchedule {
 public:
  // The base rates stay when the warm-up ends.
  LinearWarmup(torch::optim::Optimizer& optimizer, LinearWarmupOptions options);
  // `then` stands at its beginning until the warm-up ends, is stepped from there on by this scheduler alone, and saved
  // with it: give AdaptiveDataParallel this one only. It may be of LibTorch; a ReduceLROnPlateau is still told its
  // metrics by the program, of which those during the warm-up have no effect on the rates.
  LinearWarmup(torch::optim::Optimizer& optimizer, torch::optim::LRScheduler& then, LinearWarmupOptions options);
  std::string type() const override { return "LinearWarmup"; }

  // Throws UsageError behind the warm-up if `then` is not an LRSchedule.
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
  bool maximize = false;             // whether a higher metric is better (accuracy) or a lower one (loss)
  double factor = 0.1;               // of the rate, at each reduction; below 1
  int patience = 10;                 // calls without improvement that are let pass
  double threshold = 1e-4;           // by how much a metric must be better to count
  bool absolute_threshold = false;   // whether that is a difference, or a fraction of the best metric
  int cooldown = 0;                  // calls after a reduction in which none counts as bad
  std::vector<double> min_lr = {0};  // lowest rate: one for all parameter groups, or one each
  double eps = 1e-8;                 // a reduction by no more than this is left out
};

// Reduces the rates when a metric stops improving.
class ReduceLROnPlateau final : public torch::optim::LRScheduler, public internal::SaveableScheduler {
 public:
  // Leaves the rates as they are until a metric stops improving.
  ReduceLROnPlateau(torch::optim::Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  std::string type() const override { return "ReduceLROnPlateau"; }

  // To be called once an epoch, with a metric that is the same on every replica: one from an Accumulator is, the loss
  // of a replica's own batches is not. NaN counts as bad.
  void step(double metric);
  // The best metric so far; infinity, or minus infinity with `maximize`, before the first.
  double best() const noexcept { return best_; }
  // The rates in the optimizer, a parameter group each.
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
