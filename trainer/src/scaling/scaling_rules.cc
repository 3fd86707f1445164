#include "adaptdl/torch/scaling_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/parallel.h"
#include "base/counted.h"

namespace adaptdl {

namespace {

namespace optim = torch::optim;

// Scales the learning rates of all parameter groups while the object exists.
class ScaledRates {
 public:
  ScaledRates(optim::Optimizer& optimizer, const std::vector<double>& factors) : optimizer_(optimizer) {
    auto& groups = optimizer.param_groups();
    if (factors.size() != 1 && factors.size() != groups.size()) {
      throw UsageError(
          fmt::format("the scaling rule returned {} factors for {}; scale_lr must return one "
                      "per group, or a single one for all",
                      factors.size(), counted(groups.size(), "parameter group")));
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      rates_.push_back(groups[i].options().get_lr());
      groups[i].options().set_lr(rates_.back() * factors[factors.size() == 1 ? 0 : i]);
    }
  }
  ~ScaledRates() {
    for (std::size_t i = 0; i < rates_.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates_[i]);
  }
  ScaledRates(const ScaledRates&) = delete;
  ScaledRates& operator=(const ScaledRates&) = delete;

 private:
  optim::Optimizer& optimizer_;
  std::vector<double> rates_;
};

}  // namespace

void ScalingRuleBase::initialize(DataParallel& adp, optim::Optimizer& optimizer) {
  if (adp_ != nullptr && adp_ != &adp)
    throw UsageError("a scaling rule can be used by only one AdaptiveDataParallel; create one for each");
  adp_ = &adp;
  optimizer_ = &optimizer;
}

DataParallel& ScalingRuleBase::adp() const {
  if (adp_ == nullptr)
    throw UsageError(
        "the scaling rule has no model; pass it to AdaptiveDataParallel in DataParallelOptions::scaling_rule");
  return *adp_;
}

at::Tensor ScalingRuleBase::step(optim::Optimizer::LossClosure closure) {
  auto& model = adp();
  if (model.accumulating()) return {};
  model.take_gradients();
  const auto factors = scale_lr(model.scale());
  at::Tensor loss;
  {
    const ScaledRates scaled(*optimizer_, factors);
    auto* const ruled = dynamic_cast<internal::RuledOptimizer*>(optimizer_);
    loss = ruled != nullptr ? ruled->plain_step(std::move(closure)) : optimizer_->step(std::move(closure));
  }
  model.finish_step(factors);
  return loss;
}

void ScalingRuleBase::zero_grad() {
  adp();
  internal::clear_gradients(*optimizer_);
}

void internal::clear_gradients(optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    for (auto& param : group.params()) param.mutable_grad().reset();
  }
}

std::vector<double> AdaScale::scale_lr(double scale) {
  const auto& noise = adp().gns();
  std::vector<double> factors;
  for (std::size_t group = 0; group < noise.raw_sqr_avg().size(); ++group) {
    const double var = std::max(noise.raw_var_avg()[group], 1e-6), sqr = std::max(noise.raw_sqr_avg()[group], 0.0);
    factors.push_back((var + sqr) / (var / scale + sqr));
  }
  return factors;
}

std::vector<double> AdamScale::scale_lr(double scale) {
  auto factors = AdaScale::scale_lr(scale);
  for (double& factor : factors) factor = std::sqrt(factor);
  return factors;
}

std::vector<double> LinearScale::scale_lr(double scale) { return {scale}; }

std::vector<double> SqrtScale::scale_lr(double scale) { return {std::sqrt(scale)}; }

LEGWScale::LEGWScale(double base_warmup_epochs, std::size_t data_size)
    : base_warmup_epochs_(base_warmup_epochs), data_size_(data_size) {
  if (!(base_warmup_epochs >= 0) || !std::isfinite(base_warmup_epochs))
    throw UsageError(
        fmt::format("LEGWScale: base_warmup_epochs must be 0 or more and finite, got {}", base_warmup_epochs));
  if (data_size == 0) throw UsageError("LEGWScale: data_size must be the number of samples in the dataset, got 0");
}

std::vector<double> LEGWScale::scale_lr(double scale) {
  const auto* const loader = current_dataloader();
  if (loader == nullptr)
    throw UsageError("LEGWScale requires a data loader's batch size; call step() inside the loader's loop");
  const double steps = base_warmup_epochs_ * scale * static_cast<double>(data_size_) /
                       static_cast<double>(loader->batch_size());
  const double progress = adp().gns().progress();
  return {std::sqrt(scale) * (progress < steps ? progress / steps : 1.0)};
}

}  // namespace adaptdl
