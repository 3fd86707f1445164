// Automatic mixed precision, which LibTorch offers only in Python: it runs operations in half precision where that is
// safe, and scales the loss, which fp16 requires.
//
//   GradScaler scaler;   // only for fp16: bf16 has the exponent range of float
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
// Threading: only the training thread may use these classes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>

namespace adaptdl {

// While an Autocast object exists, eligible operations of this thread on devices of type `device` compute in `dtype`:
// kBFloat16 or kHalf on CUDA, and kBFloat16 on CPUs (kHalf only if LibTorch has the kernels). The scope should cover
// the forward pass and the loss, but not the backward pass. With `enabled` false, operations compute in the types of
// their arguments. Scopes may be nested.
class Autocast {
 public:
  // Throws UsageError for any other dtype, and for devices other than CPU and CUDA.
  explicit Autocast(at::DeviceType device, at::ScalarType dtype = at::kBFloat16, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_before_;
  at::ScalarType dtype_before_;
};

// Determines how the loss scale adapts.
struct GradScalerOptions {
  double init_scale = 65536;    // initial loss scale
  double growth_factor = 2;     // multiplies the scale after growth_interval steps without overflow; above 1
  double backoff_factor = 0.5;  // multiplies the scale if a gradient is infinite or NaN; above 0 and below 1
  int growth_interval = 2000;   // steps
  bool enabled = true;          // if false, losses and gradients pass through unchanged
};

// Multiplies the loss so that small gradients do not vanish in fp16, and skips the steps whose gradients overflow
// (Micikevicius et al., 2018). All replicas make the same decision, because they see the same averaged gradients. While
// gradients accumulate, `step` and `update` do nothing.
class GradScaler {
 public:
  // Throws UsageError if an option is out of range.
  explicit GradScaler(GradScalerOptions options = {});

  // Multiplies the loss by the scale.
  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the optimizer's gradients by the scale, once per step. Call this before you clip gradients. If you do not
  // call it, `step` divides the gradients.
  void unscale(torch::optim::Optimizer& optimizer);
  // Steps the optimizer, unless a gradient is infinite or NaN. Returns whether it stepped.
  bool step(torch::optim::Optimizer& optimizer);
  // Adapts the scale to the last step's gradients.
  void update();

  // Returns the scale, or 1 if scaling is disabled.
  double scale() const noexcept { return options_.enabled ? scale_ : 1; }

  // Save and load the scale and the number of steps since its last change. AdaptiveDataParallel calls these functions
  // for DataParallelOptions::grad_scaler. `load` throws nlohmann::json::exception for a value that `save` did not
  // return.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  enum class Found { kNothing, kFinite, kOverflow };
  GradScalerOptions options_;
  double scale_;
  int growth_ = 0;  // number of steps without overflow
  Found found_ = Found::kNothing;
  bool unscaled_ = false;
};

}  // namespace adaptdl
