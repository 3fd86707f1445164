#include "tune/sampler/combinations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "adaptdl/error.h"

namespace adaptdl::sched::tune {
namespace {

constexpr std::uint64_t kMaxCombinations = std::uint64_t{1} << 62;

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kMaxCombinations / a ? kMaxCombinations + 1 : a * b;
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) { return std::min(a + b, kMaxCombinations + 1); }

nlohmann::json value_of(const FloatRange& range, std::uint64_t position) {
  return from_internal(range, range.low + static_cast<double>(position) * range.step.value_or(0));
}

nlohmann::json value_of(const IntRange& range, std::uint64_t position) {
  return range.low + static_cast<std::int64_t>(position) * range.step;
}

nlohmann::json value_of(const Choice& choice, std::uint64_t position) { return choice.values[position]; }

std::uint64_t position_of(const FloatRange& range, const nlohmann::json& value) {
  return range.step ? static_cast<std::uint64_t>(std::llround((value.get<double>() - range.low) / *range.step)) : 0;
}

std::uint64_t position_of(const IntRange& range, const nlohmann::json& value) {
  return static_cast<std::uint64_t>((value.get<std::int64_t>() - range.low) / range.step);
}

std::uint64_t position_of(const Choice& choice, const nlohmann::json& value) {
  return static_cast<std::uint64_t>(to_internal(choice, value));
}

nlohmann::json value_of(const Distribution& distribution, std::uint64_t position) {
  return std::visit([&](const auto& each) { return value_of(each, position); }, distribution);
}

// Returns the position of the index-th value that is not in `listed`, which must be sorted.
std::uint64_t skip_listed(std::uint64_t index, const std::vector<std::uint64_t>& listed) {
  for (const std::uint64_t each : listed)
    if (each <= index) ++index;
  return index;
}

}  // namespace

Combinations::Combinations(const Space& space, const Values& given) : space_(space), given_(given) {
  for (std::size_t i = 0; i < space.parameters.size(); ++i) {
    const Parameter& parameter = space.parameters[i];
    if (!cardinality(parameter.distribution))
      throw UsageError(
          fmt::format("grid search requires a finite search space, but parameter '{}' has infinitely many values; "
                      "give it a step, or use another sampler",
                      parameter.name));
    listed_.push_back(positions_in_conditions(i));
  }
  Values values = given_;
  for (const Family& family : families()) {
    families_.emplace_back(family, count_from(family, 0, values));
    size_ = saturating_product(size_, families_.back().second);
  }
  if (size_ > kMaxCombinations)
    throw UsageError("the search space has too many combinations for grid search; use another sampler");
}

std::vector<std::uint64_t> Combinations::positions_in_conditions(std::size_t parameter) const {
  const auto& [name, distribution, when] = space_.parameters[parameter];
  std::vector<std::uint64_t> positions;
  for (const Parameter& each : space_.parameters)
    for (const Condition& condition : each.when)
      for (const nlohmann::json& value : condition.values)
        if (condition.parameter == name && contains(distribution, value))
          positions.push_back(std::visit([&](const auto& kind) { return position_of(kind, value); }, distribution));
  std::ranges::sort(positions);
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

std::vector<Combinations::Group> Combinations::groups(std::size_t parameter) const {
  const Distribution& distribution = space_.parameters[parameter].distribution;
  const std::vector<std::uint64_t>& listed = listed_[parameter];
  std::vector<Group> groups;
  for (const std::uint64_t position : listed) groups.push_back({1, value_of(distribution, position), true});
  const std::uint64_t others = *cardinality(distribution) - listed.size();
  if (others > 0) groups.push_back({others, value_of(distribution, skip_listed(0, listed)), false});
  return groups;
}

std::vector<Combinations::Family> Combinations::families() const {
  std::vector<Family> families;
  for (std::size_t i = 0; i < space_.parameters.size(); ++i) {
    const auto depends_on = [&](const Family& family) {
      return std::ranges::any_of(space_.parameters[i].when, [&](const Condition& condition) {
        return std::ranges::any_of(family,
                                   [&](std::size_t j) { return space_.parameters[j].name == condition.parameter; });
      });
    };
    Family joined;
    for (const Family& family : families)
      if (depends_on(family)) joined.insert(joined.end(), family.begin(), family.end());
    std::erase_if(families, depends_on);
    joined.push_back(i);
    std::ranges::sort(joined);
    families.push_back(std::move(joined));
  }
  return families;
}

std::uint64_t Combinations::count_from(const Family& family, std::size_t member, Values& values) const {
  if (member == family.size()) return 1;
  Values relevant;
  for (std::size_t i = member; i < family.size(); ++i)
    for (const Condition& condition : space_.parameters[family[i]].when)
      if (const auto value = values.find(condition.parameter); value != values.end()) relevant.insert(*value);
  const std::pair key(family[member], std::move(relevant));
  if (const auto known = counts_.find(key); known != counts_.end()) return known->second;
  return counts_[key] = counted_from(family, member, values);
}

std::uint64_t Combinations::counted_from(const Family& family, std::size_t member, Values& values) const {
  const Parameter& next = space_.parameters[family[member]];
  if (values.contains(next.name) || !applies(next, values)) return count_from(family, member + 1, values);
  std::uint64_t sum = 0;
  for (const Group& group : groups(family[member])) {
    values[next.name] = group.example;
    sum = saturating_sum(sum, saturating_product(group.count, count_from(family, member + 1, values)));
  }
  values.erase(next.name);
  return sum;
}

void Combinations::choose(const Family& family, std::uint64_t index, Values& values) const {
  for (std::size_t member = 0; member < family.size(); ++member) {
    const Parameter& parameter = space_.parameters[family[member]];
    if (values.contains(parameter.name) || !applies(parameter, values)) continue;
    for (const Group& group : groups(family[member])) {
      values[parameter.name] = group.example;
      const std::uint64_t each = count_from(family, member + 1, values);
      if (index >= group.count * each) {
        index -= group.count * each;
        continue;
      }
      if (!group.listed)
        values[parameter.name] = value_of(parameter.distribution, skip_listed(index / each, listed_[family[member]]));
      index %= each;
      break;
    }
  }
}

Values Combinations::at(std::uint64_t index) const {
  Values values = given_;
  for (const auto& [family, count] : families_) {
    choose(family, index % count, values);
    index /= count;
  }
  return values;
}

}  // namespace adaptdl::sched::tune
