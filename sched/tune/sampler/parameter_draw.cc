#include "tune/sampler/parameter_draw.h"

#include <cmath>

#include "tune/study/portable_math.h"

namespace adaptdl::sched::tune {
namespace {

double interpolate(double low, double high, double place) { return low + place * (high - low); }

double interpolate_log(double low, double high, double place) {
  return portable::exp(interpolate(portable::log(low), portable::log(high), place));
}

double number_at(const FloatRange& range, double place) {
  if (range.step) return range.low + std::floor(place * static_cast<double>(*cardinality(range))) * *range.step;
  return range.log ? interpolate_log(range.low, range.high, place) : interpolate(range.low, range.high, place);
}

double number_at(const IntRange& range, double place) {
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  if (range.log) return interpolate_log(low - 0.5, high + 0.5, place);
  const auto count = static_cast<double>(*cardinality(range));
  return low + std::floor(place * count) * static_cast<double>(range.step);
}

double number_at(const Choice& choice, double place) {
  return std::floor(place * static_cast<double>(choice.values.size()));
}

}  // namespace

nlohmann::json value_at(const Distribution& distribution, double place) {
  return from_internal(distribution,
                       std::visit([&](const auto& each) { return number_at(each, place); }, distribution));
}

Values draw_parameters(const Space& space, const Values& given, const Draw& draw) {
  Values values = given;
  for (std::size_t i = 0; i < space.parameters.size(); ++i) {
    const Parameter& parameter = space.parameters[i];
    if (!values.contains(parameter.name) && applies(parameter, values)) values[parameter.name] = draw(parameter, i);
  }
  return values;
}

}  // namespace adaptdl::sched::tune
