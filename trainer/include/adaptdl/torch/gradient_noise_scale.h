// The gradient noise scale: how much of a gradient is signal, and how much is noise from the batch on which it was
// computed.
//
// For each parameter group, GradientNoiseScale estimates the squared norm of the true gradient (sqr) and the trace of
// its covariance at the initial batch size (var). The estimates use gradients that a step computes anyway: the
// gradients of each replica and each accumulated batch, and their mean. For n gradients g_i with mean g, computed on
// `scale` initial batches in total (McCandlish et al., 2018, appendix A; Johnson et al., 2020, section 4),
//
//   sqr = (n |g|^2 - mean |g_i|^2) / (n - 1)        var = scale (mean |g_i|^2 - |g|^2) / (n - 1)
//
// Both estimates are unbiased but noisy. The class therefore keeps their moving averages, corrected for the bias from
// starting at zero. The smoothing factor is 0.999^scale, so that a step with a large batch has the same weight as the
// small steps that it replaces. If a step has a single gradient, that gradient and the previous step's gradient are
// used as the g_i ("differenced"). Because the parameters change between the two steps, the result is biased, so these
// averages are dropped once a step has several gradients.
//
// Threading: only the training thread may use the object.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace adaptdl {

// The measurements of a step. Each vector has one element per parameter group.
struct GradientSample {
  std::vector<double> local_sqr;  // mean of the squared norms of the gradients
  std::vector<double> total_sqr;  // squared norm of the gradients' mean
  int count = 0;                  // number of gradients, at least 2
  double scale = 0;               // total number of samples, divided by the initial batch size
  bool differenced = false;       // whether the gradients come from two successive steps
};

class GradientNoiseScale {
 public:
  // Starts without an estimate, as if gradients had norm 1 and no noise. REQUIRES groups >= 1.
  explicit GradientNoiseScale(std::size_t groups);

  // Adds a step to the averages, unless it contains NaN or infinity. Returns whether it was added. REQUIRES that the
  // sample has the number of groups given to the constructor.
  bool update(const GradientSample& sample);

  // Return the averages, summed over the groups. An average that noise has pushed below 0 (sqr) or 1e-6 (var) is
  // replaced by this limit.
  double sqr_avg() const noexcept;
  double var_avg() const noexcept;
  // Return the averages by group.
  const std::vector<double>& raw_sqr_avg() const noexcept { return sqr_.average; }
  const std::vector<double>& raw_var_avg() const noexcept { return var_.average; }
  // Returns whether there is an estimate.
  bool known() const noexcept { return sqr_.weight > 0; }

  // Returns the progress of a step at `scale`, in steps at the initial batch size: (var + sqr) / (var / scale + sqr).
  double gain(double scale) const noexcept;

  // Returns the number of scale-invariant iterations, which is the sum of the gains of all steps.
  double progress() const noexcept { return progress_; }
  // Adds the gain of a step to the progress.
  void advance(double gain) noexcept { progress_ += gain; }
  // Replaces the progress.
  void set_progress(double progress) noexcept { progress_ = progress; }

  // Save and load the complete state, bit for bit. `load` throws nlohmann::json::exception, without changing anything,
  // for a value that `save` did not return.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  // A moving average of estimates; `average` is sum / weight.
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
