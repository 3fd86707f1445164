// Data-parallel training of a model over all replicas of a job, checkpointed and restored as a whole.
//
//   Net net;
//   auto optimizer = torch::optim::SGD(net->parameters(), 0.1);
//   adaptdl::init_process_group();
//   adaptdl::AdaptiveDataParallel model(net, optimizer);
//   ...
//   auto loss = loss_of(model(batch.data), batch.target);
//   optimizer.zero_grad(); loss.backward(); optimizer.step();
//
// With an Adaptive optimizer (scaling_rules.h) it also measures the gradient noise scale, and each step takes the
// learning rate that fits the step's batch size. Gradients of accumulated batches are held back until the last batch of
// the step: then the optimizer steps with their mean, and before it finds no gradients.
//
// Each replica computes gradients on its part of the batch; c10d::Reducer averages them over the replicas in buckets,
// while the backward pass still runs. Every replica then takes the same step, so their parameters stay equal, bit for
// bit.
//
// Elasticity: model, optimizer (with its learning rates) and LR scheduler are one checkpoint::State. It is loaded when
// the object is made, if the job has a checkpoint. The order of the gradient buckets is part of it, so that a run which
// is interrupted and resumed on as many replicas sums its gradients in the same order as one that is not.
//
// Lifetime: the model is shared; optimizer and scheduler must outlive the object. Threading: used by the training
// thread.
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

// In which type gradients travel between replicas: half as many bytes, for some of the precision.
enum class GradientCompression { kNone, kFp16, kBf16 };

// Options of AdaptiveDataParallel.
struct DataParallelOptions {
  // Name of the checkpoint state: unique among the instances of a program, and the same from run to run.
  std::string name = "adaptdl-dataparallel";
  // Whether some parameters may get no gradient in a step (control flow in forward). The graph is then searched at each
  // step, and buckets keep their first order, which costs some overlap.
  bool find_unused_parameters = false;
  // Whether buffers, such as the running statistics of BatchNorm, are made equal to those of rank 0 before each
  // training step.
  bool broadcast_buffers = true;
  // Whether gradients are views into the buckets, which saves a copy and as much memory as the gradients take. Then
  // LibTorch 1.13's zero_grad fails, as it detaches them.
  bool gradient_as_bucket_view = false;
  // Gradients are divided by the number of replicas first, then rounded to this type and summed in it. It is worth it
  // where the network limits the step; on one machine it mostly costs time. The noise scale then includes the rounding.
  GradientCompression gradient_compression = GradientCompression::kNone;
  // Size of a bucket in MiB: gradients are averaged bucket by bucket. Smaller ones start earlier, larger ones cost less
  // each.
  std::size_t bucket_cap_mb = 25;
  // How the learning rate follows the batch size. Null: AdamScale for an Adaptive Adam or AdamW, AdaScale for any other
  // Adaptive optimizer, and for one that is not Adaptive no rule, no noise scale and no adaptive batch size.
  std::shared_ptr<ScalingRuleBase> scaling_rule;
  // Whether a step with NaN or infinite gradients throws Error, instead of a warning. Needs a scaling rule, whose step
  // measures them. Steps that a GradScaler skips do not count.
  bool stop_on_nan = false;
  // The scaler of the loss, if there is one (amp.h): part of the checkpoint. It outlives the object.
  GradScaler* grad_scaler = nullptr;
};

// What AdaptiveDataParallel does, whatever the type of its model.
class DataParallel {
 public:
  // A collective call: all replicas make their instances in the same order. `scheduler` may be null.
  // Throws UsageError if the optimizer is not supported (see docs/models.md) or the name is taken, Error if there
  // is no process group or the replicas' models differ, checkpoint::CheckpointError if the checkpoint does not fit the
  // model.
  DataParallel(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer,
               torch::optim::LRScheduler* scheduler, DataParallelOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // To be called around each forward pass of the model; `outputs` are the tensors that the loss is computed from, and
  // `complete` whether those are all. Throws UsageError if the search for unused parameters needs others.
  void before_forward();
  void after_forward(const std::vector<at::Tensor>& outputs, bool complete = true);

  // Whether the coming passes average their gradients over the replicas (see AdaptiveDataParallel::no_sync). Returns
  // what held before.
  bool set_sync(bool sync) noexcept;

  // The gradient noise scale, in preconditioned gradients under AdamScale with Adam or AdamW.
  const GradientNoiseScale& gns() const noexcept;
  // Progress of the last step, in steps at the initial batch size; 1 before the first; 0 if its gradients were NaN or
  // infinite.
  double gain() const noexcept;
  // Mean factor of the learning rates in the last step.
  double lr_factor() const noexcept;
  // Samples of one batch on all replicas, and of all batches of a step, over the initial batch size. Outside a loader's
  // loop: what set_accum_scale was given, else 1.
  double accum_scale() const noexcept;
  double scale() const noexcept;
  // Batches of the last step.
  int accum_count() const noexcept;
  // Null without one.
  ScalingRuleBase* scaling_rule() const noexcept;
  // Whether the program should clear the gradients before the next pass: false where that adds to those of a step that
  // has begun.
  bool should_zero_grad() const;
  // Drops the step that has begun: the gradients held back and those in the parameters. To be called by all replicas.
  void reset_accumulation();
  // For a program that chooses its batch sizes itself, outside a loader's loop: the accum_scale() of the coming passes.
  // Throws UsageError unless it is above 0 and finite.
  void set_accum_scale(double scale);
  // Sets gns().progress(), for example to that of another job whose parameters the model has. Throws UsageError if it
  // is negative or not finite.
  void set_progress(double progress);
  // Writes Gradient_Norm_Sqr, Gradient_Variance, Gain, Learning_Rate_Factor, Accum_Scale, Accum_Count and Progress.
  void to_tensorboard(SummaryWriter& writer, std::int64_t global_step, const std::string& tag_prefix = {}) const;

  // For scaling rules: whether the last forward pass was of a batch that does not end its step, or a replica was lost in
  // it, so that there is nothing to step with; takes the gradients of a finished step into the noise scale; counts the
  // step.
  bool accumulating() const noexcept;
  void take_gradients();
  void finish_step(const std::vector<double>& lr_factors);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A data-parallel model: called like the model it wraps. `Model` is a module holder (TORCH_MODULE) or a shared_ptr to a
// module.
template <class Model>
class AdaptiveDataParallel {
 public:
  // Arguments and errors are those of DataParallel.
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, nullptr, std::move(options)) {}
  AdaptiveDataParallel(Model model, torch::optim::Optimizer& optimizer, torch::optim::LRScheduler& scheduler,
                       DataParallelOptions options = {})
      : AdaptiveDataParallel(std::move(model), optimizer, &scheduler, std::move(options)) {}

  // Runs the model's forward pass. Its result may be of any type but void. Only the search for unused parameters looks
  // into it: it finds the tensors in containers, tuples, optionals and IValues. For a struct of yours, define a
  // function `std::vector<at::Tensor> tensors_of(const Output&)` in the namespace of the struct.
  //
  // With gradients enabled, run one backward pass over the results of one or more forward passes before you start the
  // forward passes of the next. If there are several backward passes before a step, their gradients are added, and
  // count as those of parts of one batch. Throws UsageError in the loop of a loader with an adaptive batch size if the
  // optimizer has no scaling rule, and in that of a loader that accumulates gradients if there was a backward pass in
  // this batch already.
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

  // While the result lives, forward passes are not synchronized: their backward passes add this replica's gradients to
  // the parameters and communicate nothing. The next synchronized pass averages the sum over the replicas. It must come
  // before the optimizer's step: that of an Adaptive optimizer throws UsageError otherwise, and with a plain one the
  // replicas diverge. Gradients are added, so divide each loss by the number of passes:
  //
  //   {
  //     auto no_sync = model.no_sync();
  //     (loss_of(model(first)) / 2).backward();
  //   }
  //   (loss_of(model(second)) / 2).backward();
  //   optimizer.step();
  //
  // All replicas do it in the same passes. Where these are of several batches of a data loader, no checkpoint is saved
  // and no replica joins or leaves between them, and what is left at the end of its loop is dropped. A loader that
  // adapts its batch size or accumulates gradients itself does not permit this.
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

  // The wrapped model: `model->train()`, `model->eval()`.
  auto* operator->() { return &*model_; }
  // The model itself.
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
