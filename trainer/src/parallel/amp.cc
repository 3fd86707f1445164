#include "adaptdl/torch/amp.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/error.h"
#include "support/torch_compat.h"

namespace adaptdl {

Autocast::Autocast(at::DeviceType device, at::ScalarType dtype, bool enabled) : device_(device) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf)
    throw UsageError(fmt::format("Autocast: the type must be BFloat16 or Half, got {}", c10::toString(dtype)));
  if (device != at::kCPU && device != at::kCUDA)
    throw UsageError(fmt::format("Autocast: the device must be CPU or CUDA, got {}", at::DeviceTypeName(device, true)));
  enabled_before_ = compat::autocast_enabled(device);
  dtype_before_ = compat::autocast_dtype(device);
  at::autocast::increment_nesting();
  compat::set_autocast(device, enabled, dtype);
}

Autocast::~Autocast() {
  // The cached casts of weights are valid only until the outermost scope ends, because the optimizer then changes the
  // weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  compat::set_autocast(device_, enabled_before_, dtype_before_);
}

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(options.init_scale) {
  const auto check = [](bool right, const char* name, double value, const char* takes) {
    if (!right) throw UsageError(fmt::format("GradScaler: {0} must be {2}, got {1}", name, value, takes));
  };
  check(options.init_scale > 0, "init_scale", options.init_scale, "above 0");
  check(options.growth_factor > 1, "growth_factor", options.growth_factor, "above 1");
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
        "above 0 and below 1");
  check(options.growth_interval > 0, "growth_interval", options.growth_interval, "a number of steps above 0");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return options_.enabled ? loss * scale_ : loss; }

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled || std::exchange(unscaled_, true)) return;
  torch::NoGradGuard no_grad;
  at::Tensor overflow;
  for (auto& group : optimizer.param_groups()) {
    for (auto& param : group.params()) {
      auto& gradient = param.mutable_grad();
      if (!gradient.defined()) continue;
      gradient.mul_(1 / scale_);
      auto values = gradient;
      if (gradient.is_sparse()) {
        gradient = gradient.coalesce();
        values = gradient.values();
      }
      const auto infinite = at::isfinite(values).all().logical_not();
      overflow = overflow.defined() ? overflow.logical_or(infinite.to(overflow.device())) : infinite;
    }
  }
  if (overflow.defined()) found_ = overflow.item<bool>() ? Found::kOverflow : Found::kFinite;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  unscale(optimizer);
  unscaled_ = false;
  if (options_.enabled && found_ != Found::kFinite) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  const auto found = std::exchange(found_, Found::kNothing);
  if (found == Found::kOverflow) {
    scale_ *= options_.backoff_factor;
    growth_ = 0;
  } else if (found == Found::kFinite && ++growth_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    growth_ = 0;
  }
}

nlohmann::json GradScaler::save() const { return {{"scale", scale_}, {"growth", growth_}}; }

void GradScaler::load(const nlohmann::json& saved) {
  const auto scale = saved.at("scale").get<double>();
  growth_ = saved.at("growth").get<int>();
  scale_ = scale;
}

}  // namespace adaptdl
