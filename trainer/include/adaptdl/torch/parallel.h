// Trains a model on all replicas of a job, data-parallel, and checkpoints and restores its state as a whole.
//
//   Net net;
//   auto optimizer = torch::optim::SGD(net->parameters(), 0.1);
//   adaptdl::init_process_group();
//   adaptdl::AdaptiveDataParallel model(net, optimizer);
//   ...
//   auto loss = loss_of(model(batch.data), batch.target);
//   optimizer.zero_grad(); loss.backward(); optimizer.step();
//
// With an Adaptive optimizer (scaling_rules.h), it also measures the gradient noise scale, and each step uses the
// learning rate that fits its batch size. Gradients of accumulated batches are held back until the last batch of a
// step: the optimizer then steps with their mean, and finds no gradients before that.
//
// Each replica computes gradients on its part of the batch. c10d::Reducer averages them over the replicas in buckets,
// while the backward pass is running. Every replica then takes the same step, so parameters stay equal, bit for bit.
//
// Elasticity: model, optimizer (with its learning rates) and LR scheduler are one checkpoint::State. It is loaded when
// the object is created, if the job has a checkpoint. The order of the gradient buckets is part of it, so a run that is
// interrupted and resumed on the same number of replicas sums its gradients in the same order as an uninterrupted one.
//
// Lifetime: the model is shared; the optimizer and the scheduler must outlive the object.
// Threading: only the training thread may use the object.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adaptdl/torch/gradient_noise_scale.h"
#include "adaptdl/torch/internal/model_output.h"
#include "adaptdl/torch/scaling_rules.h"

namespace adaptdl {

class GradScaler;
class SummaryWriter;

// The type in which gradients are sent between replicas. kFp16 and kBf16 halve the bytes, at the cost of precision.
enum class GradientCompression { kNone, kFp16, kBf16 };

// Options of AdaptiveDataParallel.
struct DataParallelOptions {
  // Name of the checkpoint state, which must be unique among the instances of a program and the same in every run.
  std::string name = "adaptdl-dataparallel";
  // Whether some parameters may get no gradient in a step, because of control flow in forward(). The graph is then
  // searched at each step, and buckets keep their initial order, which overlaps less communication with computation.
  bool find_unused_parameters = false;
  // Whether buffers, such as the running statistics of BatchNorm, are set to those of rank 0 before each training step.
  bool broadcast_buffers = true;
  // Whether gradients are views into the buckets, which saves a copy and as much memory as the gradients use. LibTorch
  // 1.13's zero_grad then fails, because it detaches gradients.
  bool gradient_as_bucket_view = false;
  // Gradients are divided by the number of replicas, then rounded to this type and summed in it. This pays off where
  // the network limits the step; on one machine it mostly costs time. The noise scale then includes the rounding.
  GradientCompression gradient_compression = GradientCompression::kNone;
  // Size of a bucket in MiB. Gradients are averaged by bucket: small ones start earlier, large ones have less overhead.
  std::size_t bucket_cap_mb = 25;
  // How the learning rate follows the batch size. If null, an Adaptive Adam or AdamW uses AdamScale, and any other
  // Adaptive optimizer AdaScale. Without an Adaptive optimizer, there is no rule, noise scale or adaptive batch size.
  std::shared_ptr<ScalingRuleBase> scaling_rule;
  // Whether a step with NaN or infinite gradients throws Error instead of logging a warning. This requires a scaling
  // rule, whose step measures the gradients. Steps that a GradScaler skips do not count.
  bool stop_on_nan = false;
  // The scaler of the loss (amp.h), or null. It is part of the checkpoint, and must outlive the object.
  GradScaler* grad_scaler = nullptr;
};

// The part of AdaptiveDataParallel that does not depend on the type of its model.
class DataParallel {
 public:
  // A collective call: all replicas must create their instances in the same order. `scheduler` may be null. Throws
  // UsageError if the optimizer is not supported (docs/models.md) or the name is taken, Error without a process group
  // or if the replicas' models differ, and checkpoint::CheckpointError if the checkpoint does not fit the model.
  DataParallel(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer,
               torch::optim::LRScheduler* scheduler, DataParallelOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Must be called before and after each forward pass of the model. `outputs` are tensors from which the loss is
  // computed; `complete`: whether they are all. Throws UsageError if the search for unused parameters needs the others.
  void before_forward();
  void after_forward(const std::vector<at::Tensor>& outputs, bool complete = true);

  // Sets whether coming passes average their gradients (see AdaptiveDataParallel::no_sync). Returns the previous value.
  bool set_sync(bool sync) noexcept;

  // Returns the gradient noise scale. Under AdamScale with Adam or AdamW, it is that of preconditioned gradients.
  const GradientNoiseScale& gns() const noexcept;
  // Returns the progress of the last step, in steps at the initial batch size; 1 before the first; 0 if its gradients
  // were NaN or infinite.
  double gain() const noexcept;
  // Returns the mean factor of the learning rates in the last step.
  double lr_factor() const noexcept;
  // Return the samples of one batch on all replicas, and of all batches of a step, relative to the initial batch size.
  // Outside a loader's loop, that of a batch is the value given to set_accum_scale, or 1.
  double accum_scale() const noexcept;
  double scale() const noexcept;
  // Returns the number of batches of the last step.
  int accum_count() const noexcept;
  // Returns null if there is no rule.
  ScalingRuleBase* scaling_rule() const noexcept;
  // Returns whether the program should clear the gradients before the next pass: false if that adds to those of a step
  // that has begun.
  bool should_zero_grad() const;
  // Drops the step that has begun: the gradients held back and those in the parameters. All replicas must call it.
  void reset_accumulation();
  // Sets accum_scale() of the coming passes, in a program that chooses its batch sizes itself, outside a loader's loop.
  // Throws UsageError unless it is above 0 and finite.
  void set_accum_scale(double scale);
  // Sets gns().progress(), for example to that of another job whose parameters the model has. Throws UsageError if it
  // is negative or not finite.
  void set_progress(double progress);
  // Writes Gradient_Norm_Sqr, Gradient_Variance, Gain, Learning_Rate_Factor, Accum_Scale, Accum_Count and Progress.
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = {}) const;

  // These functions are for scaling rules. accumulating() returns whether there is nothing to step with, because the
  // last forward pass was of a batch that does not end its step, or because a replica was lost in it. take_gradients()
  // adds the gradients of a finished step to the noise scale, and finish_step() counts the step.
  bool accumulating() const noexcept;
  void take_gradients();
  void finish_step(const std::vector<double>& lr_factors);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A data-parallel model, called like the one that it wraps. `Model` is a module holder (TORCH_MODULE) or a shared_ptr
// to a module.
template <class Model>
class AdaptiveDataParallel {
 public:
  // Arguments and errors are those of DataParallel.
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, nullptr, std::move(options)) {}
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, torch::optim::LRScheduler& scheduler,
                       DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, &scheduler, std::move(options)) {}

  // Runs the model's forward pass. Its result may have any type but void. Only the search for unused parameters
  // inspects it, and finds the tensors in containers, tuples, optionals and IValues. For a struct of your own, define a
  // function `std::vector<at::Tensor> tensors_of(const Output&)` in its namespace.
  //
  // With gradients enabled, run one backward pass over the results of one or more forward passes before you start the
  // forward passes of the next. If there are several backward passes before a step, their gradients are added, and
  // count as those of parts of one batch. Throws UsageError in the loop of a loader with an adaptive batch size if the
  // optimizer has no scaling rule, and in that of a loader that accumulates gradients if this batch already had a
  // backward pass.
  template <class... Args>
  auto forward(Args&&... args) {
    parallel_.before_forward();
    auto result = model_->forward(std::forward<Args>(args)...);
    std::vector<at::Tensor> outputs;
    const bool complete = internal::collect(result, outputs);
    parallel_.after_forward(outputs, complete);
    return result;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // While the result exists, forward passes are not synchronized: their backward passes add this replica's gradients to
  // the parameters and communicate nothing. The next synchronized pass averages the sum over the replicas. It must come
  // before the optimizer's step. Otherwise, the step of an Adaptive optimizer throws UsageError, and with a plain one
  // the replicas diverge. Gradients are added, so divide each loss by the number of passes:
  //
  //   {
  //     auto no_sync = model.no_sync();
  //     (loss_of(model(first)) / 2).backward();
  //   }
  //   (loss_of(model(second)) / 2).backward();
  //   optimizer.step();
  //
  // All replicas must do this in the same passes. If these belong to several batches of a data loader, no checkpoint is
  // saved and no replica joins or leaves between them, and an incomplete step is dropped at the end of the loop. A
  // loader that adapts its batch size or accumulates gradients itself does not permit this.
  class [[nodiscard]] NoSync {
   public:
    NoSync(NoSync&& other) noexcept : parallel_(std::exchange(other.parallel_, nullptr)), before_(other.before_) {}
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync() {
      if (parallel_ != nullptr) parallel_->set_sync(before_);
    }

   private:
    friend class AdaptiveDataParallel;
    explicit NoSync(DataParallel& parallel) : parallel_(&parallel), before_(parallel.set_sync(false)) {}
    DataParallel* parallel_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(parallel_); }

  // See DataParallel.
  const GradientNoiseScale& gns() const noexcept { return parallel_.gns(); }
  double gain() const noexcept { return parallel_.gain(); }
  double accum_scale() const noexcept { return parallel_.accum_scale(); }
  int accum_count() const noexcept { return parallel_.accum_count(); }
  bool should_zero_grad() const { return parallel_.should_zero_grad(); }
  void reset_accumulation() { parallel_.reset_accumulation(); }
  void set_accum_scale(double scale) { parallel_.set_accum_scale(scale); }
  void set_progress(double progress) { parallel_.set_progress(progress); }
  ScalingRuleBase* scaling_rule() const noexcept { return parallel_.scaling_rule(); }
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = {}) const {
    parallel_.to_tensorboard(writer, global_step, tag_prefix);
  }

  // Accesses the wrapped model: `model->train()`, `model->eval()`.
  auto* operator->() { return &*model_; }
  // Returns the model as given to the constructor.
  Model& module() { return model_; }

 private:
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, torch::optim::LRScheduler* scheduler,
                       DataParallelOptions options)
      : model_(std::move(model)), parallel_(shared(model_), optimizer, scheduler, std::move(options)) {}

  static std::shared_ptr<torch::nn::Module> shared(const Model& model) {
    if constexpr (requires { model.ptr(); }) {
      return model.ptr();
    } else {
      return model;
    }
  }

  Model model_;
  DataParallel parallel_;
};

}  // namespace adaptdl
