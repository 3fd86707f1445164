// How samplers draw one parameter, and all those of a trial that apply.
#pragma once

#include <cstddef>
#include <functional>

#include "tune/space.h"

namespace adaptdl::sched::tune {

// The value at a place in [0, 1) of a distribution: each of equally many places for the values of a choice or a stepped
// range, and in the logarithm for those that are logarithmic.
nlohmann::json value_at(const Distribution& distribution, double place);

// `given` and, in the order of the space, a value of each other parameter that applies beside those before it. `draw`
// receives the parameter and its index in the space.
using Draw = std::function<nlohmann::json(const Parameter&, std::size_t)>;
Values draw_parameters(const Space& space, const Values& given, const Draw& draw);

}  // namespace adaptdl::sched::tune
