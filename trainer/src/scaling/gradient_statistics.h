// Takes part in each backward pass of a model: it holds back the gradients of accumulated batches until the last batch
// of a step, and measures what the gradient noise scale needs.
//
// A hook on the accumulation of each parameter's gradient runs before c10d::Reducer's own hook. The local gradient is
// thus measured while it is still in the cache (a single replica measures all gradients together at the end). Held
// gradients are added before the reduction, so that the reduction can keep its fused division. The averaged gradient is
// measured right after the reduction. The local sums are all-reduced once, while the last buckets are still being
// reduced. The time from the end of the local pass to the end of the reduction is added to the step's profile.
//
// The program cannot access held gradients: a zero_grad() between two accumulated batches changes nothing, and an
// optimizer's step() finds no gradient to step with.
//
// A program may also accumulate by hand, with several backward passes before a step. Their gradients are then treated
// as gradients of parts of one batch. Let p_ir be the gradient of pass i of k on replica r. The step's gradient is the
// sum over the passes of the mean over the replicas. It is the mean of all values k p_ir, and is compared with these
// values. All passes but the last may skip the reduction (`reduce`): their gradients stay in the parameters, and the
// last pass adds its own gradients to them and reduces the sums.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/gradient_noise_scale.h"
#include "scaling/gradient_hook.h"
#include "scaling/previous_gradient.h"
#include "scaling/squared_norm.h"
#include "support/device_time.h"
#include "support/regroup.h"
#include "support/torch_compat.h"

namespace adaptdl {

class GradientStatistics {
 public:
  struct Options {
    bool measure = false;       // false: only accumulate
    bool precondition = false;  // precondition with the moments of Adam or AdamW
    bool gradient_as_bucket_view = false;
    // Called at the end of a backward pass with the parameters that received no gradient in the pass. It may throw. If
    // null, such parameters are permitted.
    std::function<void(const std::vector<std::size_t>& params)> unused = {};
  };

  // REQUIRES that the object is created before the Reducer of these parameters. `group` may be null until set_group.
  // Each averaging of gradients increments `version`, which must outlive the object.
  GradientStatistics(std::vector<at::Tensor> params, torch::optim::Optimizer& optimizer, compat::ProcessGroupPtr group,
                     internal::Version& version, Options options);
  GradientStatistics(const GradientStatistics&) = delete;
  GradientStatistics& operator=(const GradientStatistics&) = delete;

  // Must be called between a forward pass and its backward pass; several forward passes may precede one backward pass.
  // `batch`: the number of the batch in its step, from 1, the same on all replicas. `last`: whether this batch ends the
  // step. If it does, the gradients become the mean over the step's batches. `reduce`: whether the gradients are then
  // averaged across the replicas. If they are, `prepare_reduction` prepares the Reducer; otherwise, the pass leaves
  // local gradients. REQUIRES `last` if `reduce` is false.
  void expect(int batch, bool last, bool reduce, const std::function<void()>& prepare_reduction);

  // Switches to the replicas in `group`, and drops all held gradients.
  void set_group(compat::ProcessGroupPtr group);

  // Returns whether the current step is void because a replica was lost during the step. A void step has no gradients.
  bool is_void() const noexcept { return void_; }

  // Drops the gradients held for a step that will not be finished.
  void abandon();
  // Does the same as abandon(), and clears the parameters' gradients.
  void discard();

  // Returns whether a backward pass has followed the last call of expect().
  bool has_gradient() const noexcept { return has_gradient_; }
  // Returns whether a step has begun whose gradients are not complete.
  bool incomplete() const noexcept { return begun_ && !complete_; }
  // Returns whether the last backward pass left local gradients that the program has not cleared since. A reduced pass
  // must then follow before the step.
  bool unreduced() const;
  // Clears these local gradients.
  void drop_unreduced();
  // Returns whether there is a step to abandon or to take.
  bool begun() const noexcept { return begun_; }
  // These functions describe the step that has begun or, after take(), the step that was taken: the number of its
  // batches, and the number of backward passes that the program accumulated by hand (1 if it did not accumulate).
  int batches() const noexcept { return batches_; }
  int passes_by_hand() const noexcept { return passes_; }

  // Must be called once after the step's last backward pass, by all replicas. Returns the measurements of its
  // gradients, or nullopt if nothing is measured, there was no pass, or a single gradient has no previous gradient to
  // be compared with. `batch_scale`: the samples of one pass on all replicas, divided by the initial batch size.
  // `loss_scale`: the factor by which the loss was multiplied.
  std::optional<GradientSample> take(double batch_scale, double loss_scale);

  // Resets Adam's moments to zero, before a step whose gradients have a different scale.
  void reset_moments();

  // Save, check and load the gradient with which the next gradient is compared, if there is one.
  void save(checkpoint::Writer& writer) const;
  void check(const checkpoint::Reader& reader) const;
  void load(const checkpoint::Reader& reader);

 private:
  void on_gradient(std::size_t param, const at::Tensor& gradient);
  void on_local_gradients();
  void on_mean_gradients();
  void measure_mean();
  void drop_gradients();
  void drop_local_gradients();
  void forget_passes();
  void begin_step();
  void set_aside();
  void drop_step();
  void count_passes();
  void end_unreduced();
  void check_all_used() const;
  bool single() const noexcept { return batches_ == 1 && replicas_ == 1 && passes_ == 1; }
  bool measures_at_end() const;
  Preconditioner preconditioner(std::size_t param) const;
  GradientSample several(double batch_scale, double loss_scale);

  const std::vector<at::Tensor> params_;
  torch::optim::Optimizer& optimizer_;
  compat::ProcessGroupPtr group_;
  internal::Version& version_;
  const Options options_;
  int replicas_;
  std::vector<std::optional<std::size_t>> groups_;  // by parameter; nullopt: not in the optimizer
  std::vector<std::unique_ptr<GradientHook>> hooks_;

  std::vector<bool> expected_;    // whether the current pass may still produce the parameter's gradient
  std::vector<at::Tensor> held_;  // sums over the step's batches so far; in the last batch, divided by their number
  int batches_ = 1;
  bool begun_ = false;            // whether a step has begun
  bool divided_ = false;          // whether held_ was divided
  bool last_ = false;             // whether the current pass belongs to the last batch
  bool reduce_ = true;            // whether the current pass reduces its gradients
  bool queued_ = false;           // whether a callback at the end of the pass is queued
  bool has_gradient_ = false;     // whether the pass has produced a gradient
  bool complete_ = false;         // whether the step's gradients are complete and not yet taken
  bool measured_at_end_ = false;  // whether the sums that local_ would contain are in mean_ instead
  bool void_ = false;
  // The following members are for accumulation by hand.
  bool untaken_ = false;  // earlier complete gradients were not taken, and may still be in the parameters
  bool on_top_ = false;   // earlier gradients are in the parameters, and this step adds to them
  int passes_ = 1;
  bool unreduced_ = false;
  bool had_unreduced_ = false;  // this step had unreduced passes before the current one
  // The versions of the local gradients. Clearing the gradients changes their versions, in the same way on all
  // replicas.
  std::vector<std::optional<std::uint32_t>> unreduced_versions_;
  std::vector<double> earlier_;  // sum of local_ over the earlier passes; empty if there are none
  at::Tensor local_earlier_;     // same as earlier_, for this replica's unreduced passes; undefined if there are none
  internal::TimeMark last_gradient_;
  GroupSums local_, mean_;
  c10::intrusive_ptr<c10d::Work> reducing_;  // the reduction of local_
  PreviousGradient previous_;                // for steps with a single gradient
};

}  // namespace adaptdl
