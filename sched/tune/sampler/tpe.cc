#include "tune/sampler/tpe.h"

#include <algorithm>
#include <cmath>

#include "tune/sampler/parameter_draw.h"
#include "tune/sampler/parzen_estimator.h"
#include "tune/sampler/trial_split.h"

namespace adaptdl::sched::tune {
namespace {

using Parameters = std::vector<const Parameter*>;

bool is_choosable(const Parameter& parameter) { return cardinality(parameter.distribution) != 1; }

// Advances `place` to the name, which must not precede `place`, and returns whether the name was found. For many names
// in order, this is faster than searching for each of them.
template <typename Iterator>
bool advance_to(const std::string& name, Iterator& place, Iterator end) {
  for (; place != end; ++place)
    if (const int order = place->first.compare(name); order >= 0) return order == 0;
  return false;
}

// Returns the parameters that are sampled together, sorted by name.
Parameters common(const Space& space, const TrialSplit& split, const Values& given) {
  Parameters common;
  for (const Parameter& each : space.parameters)
    if (!given.contains(each.name) && is_choosable(each)) common.push_back(&each);
  std::ranges::sort(common, {}, &Parameter::name);
  for (const Trial* trial : split.ended) {
    Parameters kept;
    auto place = trial->distributions.begin();
    for (const Parameter* each : common)
      if (advance_to(each->name, place, trial->distributions.end()) && place->second == each->distribution)
        kept.push_back(each);
    common = std::move(kept);
  }
  return common;
}

// Returns the points of the trials that have all the parameters, within their current ranges.
std::vector<Point> points(const Parameters& parameters, const std::vector<const Trial*>& trials) {
  std::vector<Point> points;
  for (const Trial* trial : trials) {
    Point point;
    point.reserve(parameters.size());
    auto place = trial->parameters.begin();
    for (const Parameter* each : parameters) {
      if (!advance_to(each->name, place, trial->parameters.end()) || !contains(each->distribution, place->second))
        break;
      point.push_back(to_point(each->distribution, to_internal(each->distribution, place->second)));
    }
    if (point.size() == parameters.size()) points.push_back(std::move(point));
  }
  return points;
}

Values most_promising(const Parameters& parameters, const TrialSplit& split, RandomBits& random) {
  std::vector<Distribution> distributions;
  for (const Parameter* each : parameters) distributions.push_back(each->distribution);
  const ParzenEstimator good(distributions, points(parameters, split.good));
  const ParzenEstimator rest(distributions, points(parameters, split.rest));
  Point best;
  double best_ratio = 0;
  for (int i = 0; i < TpeSampler::kCandidates; ++i) {
    Point candidate = good.draw(random);
    const double ratio = good.log_density(candidate) - rest.log_density(candidate);
    if (!best.empty() && ratio <= best_ratio) continue;
    best = std::move(candidate);
    best_ratio = ratio;
  }
  Values values;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    values[parameters[i]->name] = from_internal(distributions[i], from_point(distributions[i], best[i]));
  return values;
}

}  // namespace

std::optional<Values> TpeSampler::sample(const Space& space, const Study& study, int number, const Values& given) {
  RandomBits random({seed_, static_cast<std::uint64_t>(number)});
  const TrialSplit split(study, number);
  const bool is_startup = split.ended.size() < kStartupTrials;
  const Parameters together = is_startup ? Parameters{} : common(space, split, given);
  const Values joint = together.empty() ? Values{} : most_promising(together, split, random);
  return draw_parameters(space, given, [&](const Parameter& parameter, std::size_t) {
    if (is_startup || !is_choosable(parameter)) return value_at(parameter.distribution, random.unit());
    if (const auto known = joint.find(parameter.name); known != joint.end()) return known->second;
    return most_promising({&parameter}, split, random).at(parameter.name);
  });
}

}  // namespace adaptdl::sched::tune
