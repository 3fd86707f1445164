#include "parallel/data_parallel_impl.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>

#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "support/replicas.h"
#include "support/step_profile.h"

namespace adaptdl {

namespace {

constexpr int kMaxWarnings = 10;

}  // namespace

bool DataParallel::Impl::learns() const {
  const auto* const loader = current_dataloader();
  if (!torch::GradMode::is_enabled() || loader == nullptr || !loader->nested()) return torch::GradMode::is_enabled();
  if (!model->is_training()) return false;
  throw UsageError(
      fmt::format("'{}': cannot train in the loop of data loader '{}', which is nested in another; call eval() on "
                  "the model, or use torch::NoGradGuard",
                  name(), loader->name()));
}

bool DataParallel::Impl::watches() const {
  return rule != nullptr || !reduces || current_dataloader() != nullptr || statistics->begun();
}

void DataParallel::Impl::begin_pass() {
  auto* const loader = current_dataloader();
  if (loader != nullptr && model->is_training()) loader->train();
  last = true;
  batch_in_step = 1;
  batch_scale = given_scale;
  if (loader == nullptr || !loader->training()) {
    if (statistics->incomplete()) statistics->abandon();  // the loop of that step has ended
    return;
  }
  if (rule == nullptr && loader->max_batch_size().value_or(0) > loader->batch_size()) {
    throw UsageError(
        fmt::format("the batch size of data loader '{}' is adaptive, but the learning rate of '{}' is not; use an "
                    "adaptdl::Adaptive optimizer, such as Adaptive<torch::optim::SGD>",
                    loader->name(), name()));
  }
  last = loader->is_optim_step();
  batch_in_step = loader->accumulated() + 1;
  batch_scale = static_cast<double>(loader->current_local_bsz()) * internal::num_replicas() /
                static_cast<double>(loader->batch_size());
  const bool same_batch = std::exchange(batch, internal::batches_begun()) == internal::batches_begun();
  if (!same_batch) ++batches_since_step;
  if (same_batch && loader->accumulation_steps() > 0 && statistics->begun() && statistics->has_gradient()) {
    throw UsageError(
        fmt::format("'{}': no forward pass may follow a backward pass in one batch of data loader '{}', which "
                    "accumulates gradients; add the losses and call backward() once, or use torch::NoGradGuard",
                    name(), loader->name()));
  }
  // Uses the scale of the whole step, because replicas may run the model in different batches of the step.
  follow_scale(batch_scale * (loader->accumulation_steps() + 1));
  if (loader->accumulated() == 0 && !same_batch && statistics->incomplete()) statistics->abandon();
}

void DataParallel::Impl::follow_scale(double planned) {
  if (std::abs(planned - moments_scale) <= 1e-8 + 1e-5 * std::abs(moments_scale)) return;
  if (moments_scale > 0) statistics->reset_moments();
  moments_scale = planned;
}

void DataParallel::Impl::check_passes() const {
  const auto* const loader = current_dataloader();
  if (statistics->passes_by_hand() == 1 || loader == nullptr || !loader->training()) return;
  if (!loader->adaptive() && batches == 1) return;
  throw UsageError(
      fmt::format("'{}': {} backward passes before one step, but data loader '{}' {}; call step() after each "
                  "backward(), and let autoscale_batch_size accumulate gradients",
                  name(), statistics->passes_by_hand(), loader->name(),
                  loader->adaptive() ? "adapts its batch size" : "accumulates gradients itself"));
}

void DataParallel::Impl::report_invalid() {
  std::string where;
  const auto* const loader = current_dataloader();
  if (loader != nullptr && current_epoch() && loader->current_batch_size() > 0)
    where = fmt::format(" in step {} of epoch {}", *loader->current_index() / loader->current_batch_size(),
                        *current_epoch());
  if (options.stop_on_nan)
    throw Error(fmt::format("'{}': NaN or infinite gradients{}; lower the learning rate, or disable stop_on_nan",
                            name(), where));
  if (internal::replica_rank() != 0 || ++warned > kMaxWarnings) return;
  log::warn(
      fmt::format("'{}': NaN or infinite gradients{}; such steps change neither the progress nor the noise "
                  "scale, and no periodic checkpoint is saved after them",
                  name(), where));
}

void DataParallel::Impl::tell_metrics() const {
  metrics::set_progress(name(), noise.progress());
  if (noise.known()) metrics::set_grad_params(name(), {noise.sqr_avg(), noise.var_avg()});
}

}  // namespace adaptdl
