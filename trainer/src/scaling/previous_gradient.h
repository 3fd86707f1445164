// The gradient of the previous step. A single replica that does not accumulate has only one gradient per step, so it
// measures the noise scale on the difference between two successive gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/gradient_noise_scale.h"

namespace adaptdl {

class PreviousGradient {
 public:
  // `params`: number of parameters.
  explicit PreviousGradient(std::size_t params) : gradients_(params) {}

  // Prepares `gradient`, the step's gradient of a parameter, and the previous one for a comparison: a missing gradient
  // is treated as zero, unless both are missing, and both get the same layout.
  void match(std::size_t param, at::Tensor& gradient);
  // Returns the previous gradient of a parameter, which may be undefined. GroupSums::add_pairs replaces its values.
  const at::Tensor& of(std::size_t param) const { return gradients_[param]; }

  // Returns the sample for the comparison with the previous gradient, or nullopt if there is none. `sums`: the sums of
  // GroupSums::add_pairs. `batch_scale`, `loss_scale`: see GradientStatistics::take.
  std::optional<GradientSample> compare(const std::vector<double>& sums, double batch_scale, double loss_scale);

  // After one of these calls, the next gradient is not compared with the saved gradient. clear() also frees the memory
  // of the saved gradient.
  void invalidate() noexcept { loss_scale_ = 0; }
  void clear();

  // Save, check and load the gradient, if there is one. load() REQUIRES that check() has succeeded.
  void save(checkpoint::Writer& writer) const;
  void check(const checkpoint::Reader& reader, const std::vector<at::Tensor>& params) const;
  void load(const checkpoint::Reader& reader, const std::vector<at::Tensor>& params);

 private:
  std::vector<at::Tensor> gradients_;
  double loss_scale_ = 0;  // scale of the loss that produced the gradient; 0 if there is no gradient
};

}  // namespace adaptdl
