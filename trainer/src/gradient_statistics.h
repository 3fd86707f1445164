// Takes part in each backward pass of a model: holds back the gradients of accumulated batches until the last one of a
// step, and measures what the gradient noise scale needs.
//
// It hooks into the accumulation of each parameter's gradient, before c10d::Reducer's own hook. So the local gradient
// is measured where the backward pass has just left it, in the cache (that of a single replica is measured at the end,
// with all others); held gradients are added before the reduction; and the reduction keeps its fused division. The
// averaged gradient is measured right after the reduction. The local sums are all-reduced once, while the last buckets
// still are. The time from the end of the local pass to the end of the reduction goes to the profile of the step.
//
// Held gradients are out of the program's reach: a zero_grad() between two accumulated batches changes nothing, and an
// optimizer's step() finds no gradient to step with.
//
// A program may also accumulate by hand, by several backward passes before it steps. Their gradients are then those of
// parts of one batch. With p_ir the gradient of pass i of k on replica r, the step's gradient is the sum over the
// passes of the mean over the replicas, which is the mean of all k p_ir: these are compared with it. All but the last
// of them may leave out the reduction (`reduce`): their gradients stay in the parameters, where those of the last pass
// are added to them and reduced with them.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/gradient_noise_scale.h"
#include "device_time.h"
#include "regroup.h"
#include "squared_norm.h"
#include "torch_compat.h"

namespace adaptdl {

class GradientStatistics {
 public:
  struct Options {
    bool measure = false;       // else only accumulates
    bool precondition = false;  // by the moments of Adam or AdamW
    bool gradient_as_bucket_view = false;
    // Called at the end of a backward pass with the parameters that got no gradient in it, and may throw. Null: there
    // may be such parameters.
    std::function<void(const std::vector<std::size_t>& params)> unused = {};
  };

  // REQUIRES to be made before the Reducer of these parameters. `group` may be null: until set_group. Counts each
  // step's averaged gradients in `version`, which outlives the object.
  GradientStatistics(std::vector<at::Tensor> params, torch::optim::Optimizer& optimizer, compat::ProcessGroupPtr group,
                     internal::Version& version, Options options);
  ~GradientStatistics();

  // To be called between a forward pass and its backward pass; several forward passes may precede one backward pass.
  // `batch`: the number of the batch in its step, from 1, the same on all replicas. `last`: it ends the step; the
  // gradients are then the mean over its batches, and `prepare_reduction` readies the Reducer, unless `reduce` is
  // false: such a pass leaves local gradients. REQUIRES `last` in a pass without a reduction.
  void expect(int batch, bool last, bool reduce, const std::function<void()>& prepare_reduction);

  // From now on with these replicas. Nothing is held then.
  void set_group(compat::ProcessGroupPtr group);

  // Whether the step under way came to nothing, for a replica was lost in it: there are no gradients then.
  bool is_void() const noexcept { return void_; }

  // Forgets what is held: the step will not be finished.
  void abandon();
  // The same, and clears the parameters' gradients.
  void discard();

  // Whether a backward pass has followed the last call of expect().
  bool has_gradient() const noexcept { return has_gradient_; }
  // Whether a step has begun whose gradients are not complete.
  bool incomplete() const noexcept { return begun_ && !complete_; }
  // Whether the last backward pass left local gradients, to which a reduced one must be added before the step, and the
  // program has not cleared them since.
  bool unreduced() const;
  // Clears them.
  void drop_unreduced();
  // Whether there is a step to abandon or to take.
  bool begun() const noexcept { return begun_; }
  // Of the step that has begun or, after take(), of the step that was taken: its batches, and the backward passes that
  // the program has accumulated by hand (1: it does not).
  int batches() const noexcept { return batches_; }
  int passes_by_hand() const noexcept { return passes_; }

  // What the step's gradients tell, to be called once after its last backward pass, by all replicas; none if there was
  // no pass or the gradients of one batch are the first. `batch_scale`: samples of all replicas' batches in one pass
  // over the initial batch size. `loss_scale`: what the loss was multiplied by.
  std::optional<GradientSample> take(double batch_scale, double loss_scale);

  // Brings back Adam's moments to nothing, for gradients of another scale.
  void reset_moments();

  // The gradient that the next one is compared with, if there is one.
  void save(checkpoint::Writer& writer) const;
  void check(const checkpoint::Reader& reader) const;
  void load(const checkpoint::Reader& reader);

 private:
  struct Hook;
  void on_gradient(std::size_t param, const at::Tensor& gradient);
  void on_local_gradients();
  void on_mean_gradients();
  void measure_mean();
  void drop_gradients();
  void drop_local_gradients();
  void forget_passes();
  void reduce_unused();
  void begin_step();
  void set_aside();
  void drop_step();
  void count_passes();
  void end_unreduced();
  void average_unused();
  at::Tensor count_over_replicas(const std::vector<bool>& flags);
  void check_all_used() const;
  bool single() const noexcept { return batches_ == 1 && replicas_ == 1 && passes_ == 1; }
  bool measures_at_end() const;
  Preconditioner preconditioner(std::size_t param) const;
  GradientSample several(double batch_scale, double loss_scale);
  std::optional<GradientSample> differenced(double batch_scale, double loss_scale);

  const std::vector<at::Tensor> params_;
  torch::optim::Optimizer& optimizer_;
  compat::ProcessGroupPtr group_;
  internal::Version& version_;
  const Options options_;
  int replicas_;
  std::vector<std::optional<std::size_t>> groups_;  // of each parameter; none: the optimizer does not have it
  std::vector<std::unique_ptr<Hook>> hooks_;

  std::vector<bool> expected_;    // whether the current pass may still bring a gradient of the parameter
  std::vector<at::Tensor> held_;  // sums over the step's passes so far; in its last batch over the number of batches
  int batches_ = 1;
  bool begun_ = false;         // the step
  bool divided_ = false;       // held_
  bool last_ = false;          // the current pass is of the last batch
  bool reduce_ = true;         // it reduces its gradients
  bool queued_ = false;        // its end will be noticed
  bool has_gradient_ = false;  // a gradient has come in the current pass
  bool complete_ = false;      // all of the step's gradients are there, and not taken yet
  bool measured_at_end_ = false;  // what local_ would have is in mean_
  bool void_ = false;
  // Accumulation by hand:
  bool untaken_ = false;  // complete gradients were not taken before this step, and may still be there
  bool on_top_ = false;   // they are: this step adds to them
  int passes_ = 1;
  bool unreduced_ = false;
  bool had_unreduced_ = false;  // before the current pass of this step
  // The versions of the local gradients: what clears them changes these, on all replicas alike.
  std::vector<std::optional<std::uint32_t>> unreduced_versions_;
  std::vector<double> earlier_;  // local_ of the passes before this one; empty: there are none
  at::Tensor local_earlier_;     // the same of unreduced passes, on this replica alone; undefined: there are none
  internal::TimeMark last_gradient_;
  GroupSums local_, mean_;
  c10::intrusive_ptr<c10d::Work> reducing_;  // local_
  // For a single gradient: that of the step before, and what its loss was multiplied by (0: there is none).
  std::vector<at::Tensor> previous_;
  double previous_loss_scale_ = 0;
};

}  // namespace adaptdl
