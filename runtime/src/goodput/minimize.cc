#include "goodput/minimize.h"

#include <nlopt.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "adaptdl/error.h"

namespace adaptdl::goodput {
namespace {

constexpr int kMaxEvaluations = 300;
constexpr unsigned kMemory = 10;
constexpr double kTolerance = 1e-12;  // the search ends when the value changes by less than this fraction

struct Search {
  const Smooth& function;
  Minimum best;
};

// The optimizer might not end at the best of the points that it evaluated, so this function records the best one.
double evaluate(unsigned, const double* at, double* slope, void* data) {
  auto& search = *static_cast<Search*>(data);
  Point point, slopes;
  std::copy_n(at, point.size(), point.begin());
  const double value = search.function(point, slope ? &slopes : nullptr);
  if (slope) std::copy(slopes.begin(), slopes.end(), slope);
  if (value < search.best.value) search.best = {point, value};
  return value;
}

}  // namespace

Minimum minimize(const Smooth& function, const Point& start, const Point& lower, const Point& upper) {
  Search search{function, {start, std::numeric_limits<double>::infinity()}};
  const std::unique_ptr<nlopt_opt_s, decltype(&nlopt_destroy)> optimiser(
      nlopt_create(NLOPT_LD_LBFGS, static_cast<unsigned>(start.size())), &nlopt_destroy);
  if (!optimiser) throw Error("cannot start the optimizer; is the machine out of memory?");
  nlopt_set_min_objective(optimiser.get(), evaluate, &search);
  nlopt_set_lower_bounds(optimiser.get(), lower.data());
  nlopt_set_upper_bounds(optimiser.get(), upper.data());
  nlopt_set_ftol_rel(optimiser.get(), kTolerance);
  nlopt_set_maxeval(optimiser.get(), kMaxEvaluations);
  // Remember as many steps as scipy does. By default, NLopt would remember the maximum number of steps, which takes
  // more time than all evaluations of the function.
  nlopt_set_vector_storage(optimiser.get(), kMemory);
  Point at = start;
  double value = 0;
  // The returned status does not matter: the optimizer also fails when rounding leaves nothing to improve.
  nlopt_optimize(optimiser.get(), at.data(), &value);
  return search.best;
}

}  // namespace adaptdl::goodput
