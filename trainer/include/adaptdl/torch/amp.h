// Automatic mixed precision, which LibTorch offers to Python alone: operations in half precision where that is safe, and
// the scaling of the loss that fp16 needs.
//
//   GradScaler scaler;                                              // fp16 only: bf16 has the exponents of float
//   AdaptiveDataParallel model(net, optimizer, {.grad_scaler = &scaler});
//   ...
//   at::Tensor loss;
//   {
//     Autocast autocast(device.type(), at::kHalf);
//     loss = loss_of(model(batch.data), batch.target);
//   }
//   optimizer.zero_grad();
//   scaler.scale(loss).backward();
//   scaler.step(optimizer);
//   scaler.update();
//
// Threading: used by the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>

namespace adaptdl {

// While it lives, eligible operations of this thread on devices of type `device` compute in `dtype`: kBFloat16 or kHalf on
// CUDA, kBFloat16 on CPUs (kHalf only where LibTorch has the kernels). It should cover the forward pass and the loss, not
// the backward pass. With `enabled` false, they compute in the types of their arguments. May be nested.
class Autocast {
 public:
  // Throws UsageError on another dtype, or a device that LibTorch cannot do this on.
  explicit Autocast(at::DeviceType device, at::ScalarType dtype = at::kBFloat16, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_before_;
  at::ScalarType dtype_before_;
};

// How the scale of the loss adapts.
struct GradScalerOptions {
  double init_scale = 65536;    // what the loss is multiplied by at first
  double growth_factor = 2;     // above 1: of the scale, after growth_interval steps without infinity
  double backoff_factor = 0.5;  // between 0 and 1: of the scale, when a gradient is infinite or NaN
  int growth_interval = 2000;   // steps
  bool enabled = true;          // false: everything passes through unchanged
};

// Multiplies the loss so that small gradients do not vanish in fp16, and skips the steps whose gradients overflow
// (Micikevicius et al., 2018). All replicas decide alike, for they see the same averaged gradients. While gradients
// accumulate, `step` and `update` do nothing.
class GradScaler {
 public:
  // Throws UsageError on options out of range.
  explicit GradScaler(GradScalerOptions options = {});

  // Multiplies the loss by the scale.
  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the optimizer's gradients by the scale, once a step: to be called before they are clipped; `step` calls it if
  // it was not.
  void unscale(torch::optim::Optimizer& optimizer);
  // Steps the optimizer, unless a gradient is infinite or NaN. Returns whether it stepped.
  bool step(torch::optim::Optimizer& optimizer);
  // Adapts the scale to what the last step found.
  void update();

  // The scale; 1 unless enabled.
  double scale() const noexcept { return options_.enabled ? scale_ : 1; }

  // Save and load the scale and the steps since it changed, which AdaptiveDataParallel does with its checkpoint (see
  // DataParallelOptions::grad_scaler). `load` throws nlohmann::json::exception on what `save` did not give.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  enum class Found { kNothing, kFinite, kOverflow };
  GradScalerOptions options_;
  double scale_;
  int growth_ = 0;  // steps without infinity
  Found found_ = Found::kNothing;
  bool unscaled_ = false;
};

}  // namespace adaptdl
