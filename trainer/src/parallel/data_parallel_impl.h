// The implementation of DataParallel: the model's checkpoint state, its use of the process group, and the role of each
// pass in its step. GradientReducer averages the gradients, and GradientStatistics accumulates and measures them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/parallel.h"
#include "parallel/gradient_reducer.h"
#include "scaling/gradient_statistics.h"
#include "support/regroup.h"

namespace adaptdl {

struct DataParallel::Impl final : checkpoint::State, internal::GroupUser {
  Impl(std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optim, torch::optim::LRScheduler* sched,
       DataParallelOptions opts);

  // --- The checkpoint state and the process group (data_parallel_state.cc) ---

  // Makes the replicas' models equal and prepares the reduction of their gradients.
  void connect();
  void broadcast(const std::vector<at::Tensor>& tensors) const;
  void leave_group() override;
  void join_group() override;
  bool step_is_unfinished() override;
  void drop_unfinished_step() override { statistics->drop_unreduced(); }
  void begin_step() override { step_version = version.count; }
  bool has_stepped() const override;

  void sync() override { reducer->update_buckets(); }
  void save(checkpoint::Writer& writer) const override;
  void load(const checkpoint::Reader& reader) override;

  // --- The passes of a step (data_parallel_pass.cc) ---

  // Returns whether a backward pass may follow the next forward pass.
  bool learns() const;
  // Returns whether the next pass must be measured, timed or accumulated; otherwise it is a plain pass without extra
  // cost.
  bool watches() const;
  // Determines the role of the next pass in the training loader's loop.
  void begin_pass();
  // Resets Adam's moments when the scale changes, because they must come from gradients of a single scale.
  void follow_scale(double planned);
  // Throws UsageError if the program accumulated gradients by hand where it must not.
  void check_passes() const;
  // Warns that a step's gradients are not finite, or throws Error with the option stop_on_nan.
  void report_invalid();
  // Sends the progress and the noise scale to the goodput model and the scheduling hints.
  void tell_metrics() const;

  std::shared_ptr<torch::nn::Module> model;
  torch::optim::Optimizer& optimizer;
  torch::optim::LRScheduler* scheduler;
  DataParallelOptions options;
  std::vector<at::Tensor> params;  // parameters that require a gradient, in the order of registration
  std::optional<internal::GradientReducer> reducer;
  internal::Version version{name()};
  std::uint64_t boundary_version = 0;  // version after the last batch that left no unfinished step
  std::uint64_t step_version = 0;      // version at the last step boundary
  bool buffers_stale = true;           // whether a training step may have changed this replica's buffers

  const std::shared_ptr<ScalingRuleBase> rule;
  GradientNoiseScale noise;
  std::optional<GradientStatistics> statistics;
  bool reduces = true;      // whether the next passes average their gradients
  bool last = true;         // whether the current pass ends its step
  int batch_in_step = 1;    // number of the current pass's batch in its step, from 1
  std::uint64_t batch = 0;  // number of the loader's batch in the last forward pass
  double batch_scale = 1;   // samples of a pass on all replicas / initial batch size
  double given_scale = 1;   // same as batch_scale, but outside a loader's loop
  int batches = 1;          // batches of the last step
  int batches_since_step = 0;
  int batches_by_hand = 1;   // batches that the program accumulated in the last step; each adds to the progress
  bool stepped = false;      // whether the last step had gradients
  bool valid = true;         // whether the gradients of the last step that had any were finite
  int warned = 0;            // number of warnings about invalid gradients
  double moments_scale = 0;  // scale of the gradients in the optimizer's moments; 0: no gradients yet
  double gain = 1;
  double lr_factor = 1;

 private:
  std::function<void(const std::vector<std::size_t>&)> unused_handler() const;
  template <class Use>
  void each_tensor(Use use) const;
  void load_noise(const checkpoint::Reader& reader);
  void check_no_other_tensors(const checkpoint::Reader& reader, std::size_t known) const;
};

}  // namespace adaptdl
