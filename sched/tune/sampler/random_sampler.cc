#include "tune/sampler/random_sampler.h"

#include "tune/sampler/parameter_draw.h"
#include "tune/study/random_bits.h"

namespace adaptdl::sched::tune {

std::optional<Values> RandomSampler::sample(const Space& space, const Study&, int number, const Values& given) {
  RandomBits random({seed_, static_cast<std::uint64_t>(number)});
  return draw_parameters(space, given, [&](const Parameter& parameter, std::size_t) {
    return value_at(parameter.distribution, random.unit());
  });
}

}  // namespace adaptdl::sched::tune
