#include "scaling/gradient_statistics.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "loop/step_boundary.h"
#include "scaling/optimizer_state.h"
#include "scaling/unused_gradients.h"
#include "support/replicas.h"

namespace adaptdl {

namespace {

void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

// Returns whether `total`, to which `gradient` was just added, contains more than `gradient`.
bool adds_to_another(const at::Tensor& total, const at::Tensor& gradient) {
  if (total.is_sparse() != gradient.is_sparse()) return true;
  return total.is_sparse() ? total._nnz() != gradient._nnz() : !total.allclose(gradient, 0, 0, /*equal_nan=*/true);
}

}  // namespace

GradientStatistics::GradientStatistics(std::vector<at::Tensor> params, torch::optim::Optimizer& optimizer,
                                       compat::ProcessGroupPtr group, internal::Version& version, Options options)
    : params_(std::move(params)),
      optimizer_(optimizer),
      group_(std::move(group)),
      version_(version),
      options_(options),
      replicas_(internal::num_replicas()),
      groups_(params_.size()),
      expected_(params_.size(), false),
      held_(params_.size()),
      local_(optimizer.param_groups().size(), 1, params_[0].device()),
      mean_(optimizer.param_groups().size(), kPairSums, params_[0].device()),
      previous_(params_.size()) {
  std::unordered_map<const void*, std::size_t> group_of;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const auto& param : optimizer.param_groups()[g].params()) group_of[param.unsafeGetTensorImpl()] = g;
  }
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (const auto found = group_of.find(params_[i].unsafeGetTensorImpl()); found != group_of.end())
      groups_[i] = found->second;
    hooks_.push_back(std::make_unique<GradientHook>(
        params_[i], [this, i](const at::Tensor& gradient) { on_gradient(i, gradient); }));
  }
}

void GradientStatistics::expect(int batch, bool last, bool reduce, const std::function<void()>& prepare_reduction) {
  if (!begun_) {
    forget_passes();
    begin_step();
  }
  batches_ = batch;
  last_ = last;
  reduce_ = reduce;
  has_gradient_ = queued_ = false;
  void_ = void_ && internal::step_is_void();
  expected_.assign(expected_.size(), true);
  if (!last) return;
  torch::NoGradGuard no_grad;
  if (!std::exchange(divided_, true)) {
    for (at::Tensor& held : held_) {
      if (held.defined()) held.div_(batches_);
    }
  }
  if (reduce) prepare_reduction();
}

void GradientStatistics::begin_step() {
  begun_ = true;
  if (!options_.measure) return;
  measured_at_end_ = false;
  local_.clear();
  mean_.clear();
}

// Begins a step although the previous step's gradients have not been taken: the program has either dropped these
// gradients or is adding to them.
void GradientStatistics::set_aside() {
  if (options_.measure && unreduced_) {
    local_earlier_ = local_.tensor().clone();
  } else if (options_.measure) {
    if (reducing_) std::exchange(reducing_, {})->wait();
    const auto sums = measured_at_end_ ? first_sums(mean_.values()) : local_.values();
    earlier_.resize(sums.size());
    std::transform(sums.begin(), sums.end(), earlier_.begin(), earlier_.begin(), std::plus<>());
  }
  drop_step();
  untaken_ = true;
  on_top_ = false;
  begin_step();
}

void GradientStatistics::forget_passes() {
  untaken_ = on_top_ = had_unreduced_ = false;
  passes_ = 1;
  earlier_.clear();
  local_earlier_.reset();
}

void GradientStatistics::set_group(compat::ProcessGroupPtr group) {
  drop_unreduced();
  abandon();
  group_ = std::move(group);
  replicas_ = internal::num_replicas();
  if (replicas_ == 1) return;
  previous_.clear();  // only a single replica has a previous gradient; see also load()
}

void GradientStatistics::abandon() {
  drop_step();
  expected_.assign(expected_.size(), false);
  forget_passes();
}

void GradientStatistics::drop_step() {
  if (complete_) previous_.invalidate();  // the previous step's gradient was overwritten
  held_.assign(held_.size(), {});
  begun_ = divided_ = complete_ = unreduced_ = false;
  if (reducing_) std::exchange(reducing_, {})->wait();  // the reduction writes to sums that the next step clears
}

void GradientStatistics::on_gradient(std::size_t param, const at::Tensor& gradient) {
  if (!expected_[param]) return;  // it belongs to another pass, for example of another model that contains this module
  expected_[param] = false;
  if (!std::exchange(has_gradient_, true) && complete_) set_aside();
  torch::NoGradGuard no_grad;
  auto& total = params_[param].mutable_grad();
  auto& held = held_[param];
  if (last_ && !std::exchange(queued_, true)) at_end_of_backward([this] { on_local_gradients(); });
  if (!gradient.defined()) {  // the gradient is zero
    if (last_ && held.defined()) total = std::exchange(held, {});
    return;
  }
  if (untaken_ && options_.measure && !on_top_) on_top_ = adds_to_another(total, gradient);
  if (options_.measure && groups_[param] && !measures_at_end())
    local_.add_squared_norm({*groups_[param], gradient, preconditioner(param)});
  if (!last_) {
    if (held.defined()) {
      held.add_(total);
    } else {
      // The Reducer may overwrite a view into a bucket.
      held = options_.gradient_as_bucket_view ? total.clone() : total;
    }
    total.reset();
    return;
  }
  if (held.defined()) {
    total = held.add_(total, 1.0 / batches_);
    held.reset();
  } else if (batches_ > 1) {
    total.div_(batches_);
  }
}

// A single local gradient equals the averaged gradient, so only the latter is measured.
bool GradientStatistics::measures_at_end() const { return last_ && reduce_ && single() && !untaken_; }

// Runs at the end of the pass, before the Reducer waits for its buckets.
void GradientStatistics::on_local_gradients() {
  if (on_top_ && local_earlier_.defined()) local_.tensor().add_(local_earlier_);
  local_earlier_.reset();
  if (!reduce_) return end_unreduced();
  check_all_used();
  const bool reduces = options_.measure && replicas_ > 1;
  std::vector<at::Tensor> tensors;
  if (reduces) tensors.push_back(local_.tensor());
  last_gradient_ = internal::mark_time(params_[0].device());
  if (reduces) reducing_ = group_->allreduce(tensors);
  at_end_of_backward([this] { on_mean_gradients(); });
}

// Ends a pass without a reduction. The replicas agree on the number of passes later, in the reduced pass.
void GradientStatistics::end_unreduced() {
  passes_ = on_top_ ? passes_ + 1 : 1;
  if (!on_top_) earlier_.clear();
  complete_ = unreduced_ = had_unreduced_ = true;
  unreduced_versions_.clear();
  for (const auto& param : params_) {
    const auto& gradient = param.grad();
    unreduced_versions_.push_back(gradient.defined() ? std::optional(gradient._version()) : std::nullopt);
  }
}

bool GradientStatistics::unreduced() const {
  if (!unreduced_) return false;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const auto& gradient = params_[i].grad();
    if (unreduced_versions_[i] && gradient.defined() && gradient._version() == unreduced_versions_[i]) return true;
  }
  return false;
}

void GradientStatistics::discard() {
  drop_local_gradients();
  abandon();
}

void GradientStatistics::drop_unreduced() {
  if (unreduced()) discard();
}

// Runs after the Reducer's own callback.
void GradientStatistics::on_mean_gradients() {
  internal::add_sync_time(internal::seconds_between(last_gradient_, internal::mark_time(params_[0].device())));
  if (!options_.unused && batches_ > 1) reduce_unused(group_, replicas_, params_, expected_, held_);
  if (std::exchange(had_unreduced_, false) && !options_.unused) average_unused(group_, replicas_, params_, expected_);
  if (untaken_ && options_.measure) count_passes();
  if (internal::group_is_broken()) return drop_gradients();
  if (options_.measure) measure_mean();
  ++version_.count;
  held_.assign(held_.size(), {});
  complete_ = true;
}

void GradientStatistics::measure_mean() {
  std::vector<GroupGradient> gradients;
  std::vector<at::Tensor> previous;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (!groups_[i]) continue;
    auto gradient = params_[i].grad();
    if (single()) previous_.match(i, gradient);
    if (!gradient.defined()) continue;
    gradients.push_back({*groups_[i], std::move(gradient), preconditioner(i)});
    previous.push_back(previous_.of(i));
  }
  if (!single()) return mean_.add_squared_norms(gradients);
  measured_at_end_ = measures_at_end();
  mean_.add_pairs(gradients, previous);
}

void GradientStatistics::check_all_used() const {
  if (!options_.unused || std::ranges::find(expected_, true) == expected_.end()) return;
  std::vector<std::size_t> params;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i]) params.push_back(i);
  }
  options_.unused(params);
}

// The replicas agree on the number of passes, because rounding may hide from one of them that gradients were added.
void GradientStatistics::count_passes() {
  if (replicas_ > 1) {
    const int passes = on_top_ ? passes_ + 1 : 1;
    std::vector<at::Tensor> most{at::full({1}, passes, at::TensorOptions(params_[0].device()))};
    group_->allreduce(most, {.reduceOp = c10d::ReduceOp::MAX})->wait();
    on_top_ = most[0].item<float>() > 1;
    passes_ = static_cast<int>(most[0].item<float>());
  } else {
    passes_ = on_top_ ? passes_ + 1 : 1;
  }
  if (!on_top_) earlier_.clear();
}

void GradientStatistics::drop_local_gradients() {
  for (const auto& param : params_) param.mutable_grad().reset();
}

// Drops all gradients, so that the optimizer changes nothing in this void step.
void GradientStatistics::drop_gradients() {
  discard();
  void_ = true;
  internal::note_void_step();
}

std::optional<GradientSample> GradientStatistics::take(double batch_scale, double loss_scale) {
  if (unreduced_) abandon();  // the program has cleared the local gradients
  if (!std::exchange(complete_, false)) return {};
  begun_ = divided_ = false;
  if (!options_.measure) return {};
  if (reducing_) std::exchange(reducing_, {})->wait();
  if (single()) return previous_.compare(mean_.values(), batch_scale, loss_scale);
  auto sample = several(batch_scale, loss_scale);
  if (all_finite(sample.total_sqr)) previous_.clear();
  return sample;
}

GradientSample GradientStatistics::several(double batch_scale, double loss_scale) {
  GradientSample sample;
  sample.count = replicas_ * batches_ * passes_;
  sample.scale = batch_scale * batches_;
  auto local = local_.values();
  const auto mean = mean_.values();
  for (std::size_t group = 0; group < local.size(); ++group) {
    if (!earlier_.empty()) local[group] += earlier_[group];
    sample.local_sqr.push_back(local[group] * passes_ * passes_ / sample.count / (loss_scale * loss_scale));
    sample.total_sqr.push_back(mean[group * kPairSums] / (loss_scale * loss_scale));
  }
  return sample;
}

Preconditioner GradientStatistics::preconditioner(std::size_t param) const {
  return options_.precondition ? adam_preconditioner(optimizer_, *groups_[param], params_[param]) : Preconditioner{};
}

void GradientStatistics::reset_moments() {
  if (options_.precondition) reset_adam_moments(optimizer_);
}

void GradientStatistics::save(checkpoint::Writer& writer) const { previous_.save(writer); }
void GradientStatistics::check(const checkpoint::Reader& reader) const { previous_.check(reader, params_); }
void GradientStatistics::load(const checkpoint::Reader& reader) {
  if (options_.measure && replicas_ == 1) previous_.load(reader, params_);
}

}  // namespace adaptdl
