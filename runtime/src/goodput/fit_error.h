// How far the model is off what was observed, and which way to go: what the fit minimises.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "adaptdl/goodput.h"
#include "goodput/minimize.h"
#include "goodput/step_time.h"

namespace adaptdl::goodput {

enum Parameter { kAlphaC, kBetaC, kAlphaN, kBetaN, kAlphaR, kBetaR, kGamma };

// Coordinates are the logarithms of all parameters but gamma: times of jobs span many orders of magnitude.
PerfParams to_params(const Point& coordinates);
Point to_coordinates(const PerfParams& params);

class FitError {
 public:
  // Of (beta / alpha)^2 of each link that was observed.
  static constexpr double kRetrogressionWeight = 1e-2;

  explicit FitError(std::span<const Observation> observations);

  // Of the logarithms of both times, the sum of their root mean squares; plus the regularisation. `blur` is added to
  // the errors as if it were one more, independent of all, which rounds off the edge where one of them is zero.
  double operator()(const Point& coordinates, Point* slope, double blur = 0) const;
  // Root mean squared logarithmic error of the times with synchronisation.
  double optim_error(const Point& coordinates) const;

  // How many of the observations are over this kind of link.
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
