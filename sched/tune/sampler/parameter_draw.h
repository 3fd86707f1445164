// Functions with which samplers draw a single parameter, or all parameters that apply in a trial.
#pragma once

#include <cstddef>
#include <functional>

#include "tune/study/space.h"

namespace adaptdl::sched::tune {

// Maps `place`, a number in [0, 1), to a value of the distribution. All values of a choice or a stepped range
// correspond to equal parts of [0, 1); a logarithmic range is uniform in the logarithm.
nlohmann::json value_at(const Distribution& distribution, double place);

// Returns `given` and, in the order of the space, a value from `draw` for each other parameter that applies with the
// values of the parameters before it. `draw` receives the parameter and its index in the space.
using Draw = std::function<nlohmann::json(const Parameter&, std::size_t)>;
Values draw_parameters(const Space& space, const Values& given, const Draw& draw);

}  // namespace adaptdl::sched::tune
