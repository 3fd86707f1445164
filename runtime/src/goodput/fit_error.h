// The model's error on the observations, and its slope. The fit minimizes this error.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "adaptdl/goodput.h"
#include "goodput/minimize.h"
#include "goodput/step_time.h"

namespace adaptdl::goodput {

enum Parameter { kAlphaC, kBetaC, kAlphaN, kBetaN, kAlphaR, kBetaR, kGamma };

// The coordinates are gamma itself and the logarithms of all other parameters, because step times span many orders of
// magnitude.
PerfParams to_params(const Point& coordinates);
Point to_coordinates(const PerfParams& params);

class FitError {
 public:
  // The weight of (beta / alpha)^2 for each observed link.
  static constexpr double kRetrogressionWeight = 1e-2;

  explicit FitError(std::span<const Observation> observations);

  // Returns the sum of the root mean squared errors of the logarithms of both times, plus the regularization. `blur` is
  // added to each mean as if it were another, independent error, which smooths the kink where an error is zero.
  double operator()(const Point& coordinates, Point* slope, double blur = 0) const;
  // Returns the root mean squared logarithmic error of the times with synchronization.
  double optim_error(const Point& coordinates) const;

  // Returns the number of observations with this kind of link.
  std::size_t count(Link link) const { return counts_[static_cast<std::size_t>(link)]; }
  std::size_t size() const { return observed_.size(); }

 private:
  struct Observed {
    Link link;
    double retrogressions, bsz, log_grad, log_optim;
  };
  struct Sums;
  void add(const Observed& each, const PerfParams& params, Sums& sums) const;

  std::vector<Observed> observed_;
  std::array<std::size_t, 3> counts_{};
};

}  // namespace adaptdl::goodput
