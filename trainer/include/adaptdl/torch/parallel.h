// Data-parallel training of a model on all replicas of a job. The complete state is checkpointed and restored as a
// unit.
//
//   Net net;
//   auto optimizer = torch::optim::SGD(net->parameters(), 0.1);
//   adaptdl::init_process_group();
//   adaptdl::AdaptiveDataParallel model(net, optimizer);
//   ...
//   auto loss = loss_of(model(batch.data), batch.target);
//   optimizer.zero_grad(); loss.backward(); optimizer.step();
//
// With an Adaptive optimizer (scaling_rules.h), AdaptiveDataParallel also measures the gradient noise scale, and adapts
// each step's learning rate to its batch size. Gradients of accumulated batches are held back until the last batch of a
// step. The optimizer then steps with their mean; until then, it finds no gradients.
//
// Each replica computes gradients on its part of the batch. c10d::Reducer averages them across the replicas in buckets,
// while the backward pass is running. Every replica then takes the same step, so the parameters stay identical, bit for
// bit.
//
// Elasticity: the model, the optimizer (with its learning rates) and the LR scheduler form one checkpoint::State. If
// the job has a checkpoint, the state is loaded when the object is created. The state includes the order of the
// gradient buckets, so a run that is interrupted and resumed on the same number of replicas sums its gradients in the
// same order as an uninterrupted run.
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

// The type in which gradients are sent between replicas. kFp16 and kBf16 halve the traffic, at the cost of precision.
enum class GradientCompression { kNone, kFp16, kBf16 };

// Options of AdaptiveDataParallel.
struct DataParallelOptions {
  // Name of the checkpoint state, which must be unique among the instances of a program and the same in every run.
  std::string name = "adaptdl-dataparallel";
  // Whether some parameters may receive no gradient in a step, because of control flow in forward(). If so, the graph
  // is searched at each step, and the buckets keep their initial order, so less communication overlaps with
  // computation.
  bool find_unused_parameters = false;
  // Whether to copy rank 0's buffers, such as BatchNorm's running statistics, to all replicas before each training
  // step.
  bool broadcast_buffers = true;
  // Whether gradients are views into the buckets, which saves a copy and as much memory as the gradients occupy.
  // With this option, LibTorch 1.13's zero_grad fails, because it detaches gradients.
  bool gradient_as_bucket_view = false;
  // The type in which gradients are summed. Gradients are divided by the number of replicas before they are rounded to
  // this type. Compression pays off if the network is the bottleneck; on one machine, it usually costs time. With
  // compression, the measured noise scale includes the rounding error.
  GradientCompression gradient_compression = GradientCompression::kNone;
  // Size of a bucket in MiB. Gradients are averaged one bucket at a time: with small buckets, averaging starts earlier;
  // with large buckets, it has less overhead.
  std::size_t bucket_cap_mb = 25;
  // The rule that adapts the learning rate to the batch size. If null, an Adaptive Adam or AdamW uses AdamScale, and
  // any other Adaptive optimizer uses AdaScale. With any other optimizer, there is then no rule, no noise scale and no
  // adaptive batch size.
  std::shared_ptr<ScalingRuleBase> scaling_rule;
  // Whether a step with NaN or infinite gradients throws Error instead of logging a warning. The option requires a
  // scaling rule, because the rule's step checks the gradients. Steps that a GradScaler skips are exempt.
  bool stop_on_nan = false;
  // The loss scaler (amp.h), or null. It is checkpointed with the model, and must outlive the AdaptiveDataParallel.
  GradScaler* grad_scaler = nullptr;
};

// The part of AdaptiveDataParallel that does not depend on the type of its model.
class DataParallel {
 public:
  // A collective call: all replicas must create their instances in the same order. `scheduler` may be null. Throws
  // UsageError if the optimizer is not supported (docs/models.md) or the name is already in use, Error if there is no
  // process group or if the replicas' models differ, and checkpoint::CheckpointError if the checkpoint does not fit the
  // model.
  DataParallel(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer,
               torch::optim::LRScheduler* scheduler, DataParallelOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Must be called before and after each forward pass of the model. `outputs`: the tensors from which the loss is
  // computed. `complete`: whether `outputs` contains all such tensors. Throws UsageError if `complete` is false and
  // find_unused_parameters is set.
  void before_forward();
  void after_forward(const std::vector<at::Tensor>& outputs, bool complete = true);

  // Sets whether later passes average their gradients (see AdaptiveDataParallel::no_sync). Returns the previous value.
  bool set_sync(bool sync) noexcept;

  // Returns the gradient noise scale. With AdamScale and Adam or AdamW, it is measured on preconditioned gradients.
  const GradientNoiseScale& gns() const noexcept;
  // Returns the progress of the last step, in steps at the initial batch size. It is 1 before the first step, and 0 if
  // the last step's gradients were NaN or infinite.
  double gain() const noexcept;
  // Returns the mean factor of the learning rates in the last step.
  double lr_factor() const noexcept;
  // Return the number of samples in one batch on all replicas, and in all batches of a step, relative to the initial
  // batch size. Outside a loader's loop, accum_scale() is the value given to set_accum_scale, or 1.
  double accum_scale() const noexcept;
  double scale() const noexcept;
  // Returns the number of batches in the last step.
  int accum_count() const noexcept;
  // Returns the scaling rule, or null if there is none.
  ScalingRuleBase* scaling_rule() const noexcept;
  // Returns whether the program should clear the gradients before the next pass. The result is false if the pass adds
  // to the gradients of a step that has begun.
  bool should_zero_grad() const;
  // Drops the step that has begun: the gradients that are held back and those in the parameters. All replicas must call
  // this function.
  void reset_accumulation();
  // Sets accum_scale() for later passes, in a program that chooses its own batch sizes outside a loader's loop. Throws
  // UsageError unless `scale` is above 0 and finite.
  void set_accum_scale(double scale);
  // Sets gns().progress(), for example to the progress of another job from which the model's parameters come. Throws
  // UsageError if `progress` is negative or not finite.
  void set_progress(double progress);
  // Writes Gradient_Norm_Sqr, Gradient_Variance, Gain, Learning_Rate_Factor, Accum_Scale, Accum_Count and Progress.
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = {}) const;

  // These functions are for scaling rules. accumulating() returns whether the optimizer has no gradients to step with,
  // because the batch of the last forward pass does not end its step, or because a replica was lost during the step.
  // take_gradients() adds a finished step's gradients to the noise scale, and finish_step() adds the step's gain to the
  // progress.
  bool accumulating() const noexcept;
  void take_gradients();
  void finish_step(const std::vector<double>& lr_factors);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A data-parallel model that is called like the model that it wraps. `Model` is a module holder (TORCH_MODULE) or a
// shared_ptr to a module.
template <class Model>
class AdaptiveDataParallel {
 public:
  // Accepts the same arguments and throws the same errors as DataParallel.
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, nullptr, std::move(options)) {}
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, torch::optim::LRScheduler& scheduler,
                       DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, &scheduler, std::move(options)) {}

  // Runs the model's forward pass. The result may have any type but void. Only the search for unused parameters
  // inspects the result; this search finds tensors in containers, tuples, optionals and IValues. For your own struct,
  // define a function `std::vector<at::Tensor> tensors_of(const Output&)` in its namespace.
  //
  // With gradients enabled, run a backward pass over the results of one or more forward passes before you start the
  // next forward passes. If there are several backward passes before a step, their gradients are added, and are treated
  // as gradients of parts of one batch. Throws UsageError in the loop of a loader with an adaptive batch size if the
  // optimizer has no scaling rule, and in the loop of a loader that accumulates gradients if this batch already had a
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
  // the parameters and communicate nothing. The next synchronized pass averages the sum across the replicas. That pass
  // must precede the optimizer's step; otherwise, the step of an Adaptive optimizer throws UsageError, and with a plain
  // optimizer the replicas diverge. Gradients are added, so divide each loss by the number of passes:
  //
  //   {
  //     auto no_sync = model.no_sync();
  //     (loss_of(model(first)) / 2).backward();
  //   }
  //   (loss_of(model(second)) / 2).backward();
  //   optimizer.step();
  //
  // All replicas must leave the same passes unsynchronized. If the passes belong to several batches of a data loader,
  // no checkpoint is saved and no replica joins or leaves between these batches, and an incomplete step is dropped at
  // the end of the loop. Passes that belong to several batches are not supported with a loader that adapts its batch
  // size or accumulates gradients.
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
