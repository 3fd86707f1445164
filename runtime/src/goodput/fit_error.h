// The error of the model against the observations, and its slope. The fit minimises this error.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "adaptdl/goodput.h"
#include "goodput/minimize.h"
#include "goodput/step_time.h"

namespace adaptdl::goodput {

enum Parameter { kAlphaC, kBetaC, kAlphaN, kBetaN, kAlphaR, kBetaR, kGamma };

// Coordinates are the logarithms of all parameters except gamma: times of jobs span many orders of magnitude.
PerfParams to_params(const Point& coordinates);
Point to_coordinates(const PerfParams& params);

class FitError {
 public:
  // The weight of (beta / alpha)^2 of each link that was observed.
  static constexpr double kRetrogressionWeight = 1e-2;

  explicit FitError(std::span<const Observation> observations);

  // Returns the sum of the root mean squared errors of the logarithms of both times, plus the regularisation. `blur` is
  // added to each as if it were another, independent error, which rounds off the edge where an error is zero.
  double operator()(const Point& coordinates, Point* slope, double blur = 0) const;
  // Returns the root mean squared logarithmic error of the times with synchronisation.
  double optim_error(const Point& coordinates) const;

  // Returns the number of observations over this kind of link.
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
