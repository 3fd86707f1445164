// The gradient noise scale: how much of a gradient is signal and how much is noise of the batch it was computed from.
//
// For each parameter group it estimates the squared norm of the true gradient (sqr) and the trace of its covariance at
// the initial batch size (var), from gradients that a step computes anyway: those of each replica and accumulated batch,
// and their mean. With n gradients g_i of mean g, which together make up `scale` initial batches (McCandlish et al.,
// 2018, appendix A; Johnson et al., 2020, section 4),
//
//   sqr = (n |g|^2 - mean |g_i|^2) / (n - 1)        var = scale (mean |g_i|^2 - |g|^2) / (n - 1)
//
// Both estimates are free of bias but noisy, so their moving averages are kept, corrected for their start at nothing,
// with a smoothing of 0.999^scale: a step of a large batch counts as the many small ones it stands for. Where a step has
// a single gradient, it and the one of the step before take the place of the g_i ("differenced"); that has the bias of the
// parameters' change between them, so such averages are dropped once a step has several.
//
// Threading: used by the training thread.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace adaptdl {

// What a step tells of its gradients; vectors have an element a parameter group.
struct GradientSample {
  std::vector<double> local_sqr;  // mean of the squared norms of the gradients
  std::vector<double> total_sqr;  // squared norm of their mean
  int count = 0;                  // gradients, at least 2
  double scale = 0;               // samples in all of them together, over the initial batch size
  bool differenced = false;       // they are those of two steps
};

class GradientNoiseScale {
 public:
  // Without any estimate: as if gradients had norm 1 and no noise. REQUIRES groups >= 1.
  explicit GradientNoiseScale(std::size_t groups);

  // Takes a step into the averages. One with NaN or infinity is left out. Returns whether it was taken. REQUIRES as many
  // groups as the constructor was given.
  bool update(const GradientSample& sample);

  // Sums over the groups, of which noise may have made some negative: those count as 0 (sqr) or 1e-6 (var).
  double sqr_avg() const noexcept;
  double var_avg() const noexcept;
  // By group, as averaged.
  const std::vector<double>& raw_sqr_avg() const noexcept { return sqr_.average; }
  const std::vector<double>& raw_var_avg() const noexcept { return var_.average; }
  // Whether there was any step to estimate from.
  bool known() const noexcept { return sqr_.weight > 0; }

  // Progress of a step at `scale` in steps at the initial batch size: (var + sqr) / (var / scale + sqr).
  double gain(double scale) const noexcept;

  // Scale-invariant iterations: the sum of all steps' gains.
  double progress() const noexcept { return progress_; }
  // Adds the gain of a step to the progress.
  void advance(double gain) noexcept { progress_ += gain; }
  // Replaces it.
  void set_progress(double progress) noexcept { progress_ = progress; }

  // All of it, bit for bit. `load` throws nlohmann::json::exception on what `save` did not give, and changes nothing
  // then.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  // Of estimates; `average` is sum / weight.
  struct MovingAverage {
    std::vector<double> average;
    std::vector<double> sum;
    double weight = 0;
    void add(const std::vector<double>& values, double keep);
    void restart();
  };

  MovingAverage sqr_, var_;
  bool differenced_ = false;
  double progress_ = 0;
};

}  // namespace adaptdl
