#include "adaptdl/torch/parallel.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "adaptdl/generation.h"
#include "adaptdl/torch/amp.h"
#include "group/process_group.h"
#include "loop/step_boundary.h"
#include "parallel/data_parallel_impl.h"
#include "scaling/optimizer_state.h"
#include "support/step_profile.h"
#include "tensorboard/tagged_scalars.h"

namespace adaptdl {

DataParallel::DataParallel(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer,
                           torch::optim::LRScheduler* scheduler, DataParallelOptions options) {
  check_supported(optimizer);
  internal::process_group_ptr();
  impl_ = std::make_unique<Impl>(std::move(model), optimizer, scheduler, std::move(options));
  checkpoint::load_state(*impl_, /*required=*/true);
  if (!generation::joining()) impl_->connect();
  impl_->tell_metrics();
  if (const auto device = impl_->params[0].device(); device.is_cuda())
    internal::set_step_timer(internal::make_step_timer(device));
  if (!impl_->rule) return;
  impl_->rule->initialize(*this, optimizer);
  if (auto* const ruled = dynamic_cast<internal::RuledOptimizer*>(&optimizer)) ruled->rule = impl_->rule.get();
}

DataParallel::~DataParallel() {
  if (auto* const ruled = dynamic_cast<internal::RuledOptimizer*>(&impl_->optimizer)) ruled->rule = nullptr;
}

void DataParallel::before_forward() {
  const bool training = torch::GradMode::is_enabled() && impl_->model->is_training();
  if (impl_->options.broadcast_buffers && impl_->buffers_stale && impl_->reduces)
    impl_->broadcast(impl_->model->buffers());
  impl_->buffers_stale = training || (impl_->buffers_stale && !impl_->reduces);
  if (!impl_->learns()) return;
  impl_->begin_pass();
  if (!impl_->last || !impl_->reduces) return;
  impl_->reducer->before_forward();
}

bool DataParallel::set_sync(bool sync) noexcept { return std::exchange(impl_->reduces, sync); }

void DataParallel::after_forward(const std::vector<at::Tensor>& outputs, bool complete) {
  if (!impl_->learns()) return;
  if (!complete && impl_->options.find_unused_parameters)
    throw UsageError(fmt::format(
        "'{}': DataParallelOptions::find_unused_parameters requires the tensors in the model's output, which has "
        "a custom type; define std::vector<at::Tensor> tensors_of(const Output&) in its namespace",
        impl_->name()));
  const auto prepare = [&] { impl_->reducer->after_forward(outputs); };
  if (impl_->watches()) {
    impl_->statistics->expect(impl_->batch_in_step, impl_->last, impl_->reduces || !impl_->last, prepare);
  } else {
    prepare();
  }
}

const GradientNoiseScale& DataParallel::gns() const noexcept { return impl_->noise; }
double DataParallel::gain() const noexcept { return impl_->gain; }
double DataParallel::lr_factor() const noexcept { return impl_->lr_factor; }
double DataParallel::accum_scale() const noexcept { return impl_->batch_scale; }
double DataParallel::scale() const noexcept { return impl_->batch_scale * impl_->batches; }
int DataParallel::accum_count() const noexcept { return impl_->batches; }
ScalingRuleBase* DataParallel::scaling_rule() const noexcept { return impl_->rule.get(); }

bool DataParallel::should_zero_grad() const {
  return !impl_->statistics->incomplete() && !impl_->statistics->unreduced();
}

void DataParallel::reset_accumulation() { impl_->statistics->discard(); }

void DataParallel::set_accum_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw UsageError(fmt::format("'{}': accum_scale must be above 0 and finite, got {}", impl_->name(), scale));
  impl_->batch_scale = impl_->given_scale = scale;
  impl_->follow_scale(scale);
}

void DataParallel::set_progress(double progress) {
  if (!(progress >= 0) || !std::isfinite(progress))
    throw UsageError(fmt::format("'{}': progress must be 0 or more and finite, got {}", impl_->name(), progress));
  impl_->noise.set_progress(progress);
  impl_->tell_metrics();
}

void DataParallel::to_tensorboard(SummaryWriter& writer, std::int64_t global_step,
                                  const std::string& tag_prefix) const {
  internal::TaggedScalars scalars(writer, global_step, tag_prefix);
  scalars.add("Gradient_Norm_Sqr", impl_->noise.sqr_avg());
  scalars.add("Gradient_Variance", impl_->noise.var_avg());
  scalars.add("Gain", gain());
  scalars.add("Learning_Rate_Factor", lr_factor());
  scalars.add("Accum_Scale", accum_scale());
  scalars.add("Accum_Count", accum_count());
  scalars.add("Progress", impl_->noise.progress());
}

bool DataParallel::accumulating() const noexcept { return !impl_->last || impl_->statistics->is_void(); }

void DataParallel::take_gradients() {
  if (impl_->statistics->unreduced())
    throw UsageError(
        fmt::format("'{}': step() after a backward pass under no_sync() would use the gradients of this replica only; "
                    "end no_sync() before the last pass of the step",
                    impl_->name()));
  impl_->batches = impl_->statistics->begun() ? impl_->statistics->batches() : 1;
  impl_->check_passes();
  const double loss_scale = impl_->options.grad_scaler != nullptr ? impl_->options.grad_scaler->scale() : 1;
  impl_->stepped = impl_->statistics->begun() && !impl_->statistics->incomplete();
  const auto sample = impl_->statistics->take(impl_->batch_scale, loss_scale);
  impl_->batches_by_hand =
      std::clamp(std::exchange(impl_->batches_since_step, 0), 1, impl_->statistics->passes_by_hand());
  if (!impl_->stepped) return;
  const bool valid = !sample || impl_->noise.update(*sample);
  if (!valid && impl_->valid) impl_->report_invalid();
  impl_->valid = valid;
}

void DataParallel::finish_step(const std::vector<double>& lr_factors) {
  impl_->lr_factor =
      std::accumulate(lr_factors.begin(), lr_factors.end(), 0.0) / static_cast<double>(lr_factors.size());
  if (impl_->stepped) internal::note_step(impl_->name(), impl_->valid);
  if (!impl_->valid) {
    impl_->gain = 0;
    return;
  }
  impl_->gain = impl_->noise.gain(scale());
  impl_->noise.advance(impl_->gain * impl_->batches_by_hand);
  impl_->tell_metrics();
}

}  // namespace adaptdl
