// The minimization of the model's error, on which fit_perf_params is based.
#pragma once

#include <span>

#include "adaptdl/goodput.h"

namespace adaptdl::goodput {

// Returns the parameters with the smallest error (fit_error.h). fit_perf_params may trade up to one unit of
// log-likelihood for more plausible parameters. Throws under the same conditions as fit_perf_params.
PerfParams least_error_params(std::span<const Observation> observations);

}  // namespace adaptdl::goodput
