#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/sched_hints.h"

namespace adaptdl {
namespace {

using nlohmann::json;

enum class Kind { kCount, kBounds, kAmount, kOverlap, kFlag, kGradParams, kPerfParams };

struct Key {
  std::string_view name;
  Kind kind;
};

constexpr std::array<Key, 11> kHints{{{"initBatchSize", Kind::kCount},
                                      {"localBszBounds", Kind::kBounds},
                                      {"globalBatchSize", Kind::kCount},
                                      {"maxBatchSize", Kind::kCount},
                                      {"maxProfiledReplicas", Kind::kCount},
                                      {"gradientAccumulation", Kind::kFlag},
                                      {"gradParams", Kind::kGradParams},
                                      {"perfParams", Kind::kPerfParams},
                                      {"progress", Kind::kAmount},
                                      {"targetProgress", Kind::kAmount},
                                      {"liveRescale", Kind::kFlag}}};
constexpr std::array<Key, 2> kGradParams{{{"norm", Kind::kAmount}, {"var", Kind::kAmount}}};
constexpr std::array<Key, 7> kPerfParams{{{"alpha_c", Kind::kAmount},
                                          {"beta_c", Kind::kAmount},
                                          {"alpha_n", Kind::kAmount},
                                          {"beta_n", Kind::kAmount},
                                          {"alpha_r", Kind::kAmount},
                                          {"beta_r", Kind::kAmount},
                                          {"gamma", Kind::kOverlap}}};
constexpr double kMaxExactInteger = 1LL << 53;  // many readers parse JSON numbers as doubles

bool is_at_least(const json& value, double min) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= min;
}

bool is_count(const json& value) {
  if (!is_at_least(value, 1)) return false;
  const double count = value.get<double>();
  return count <= kMaxExactInteger && std::trunc(count) == count;
}

bool is_bound(const json& value) { return value.is_null() || is_count(value); }

bool is_bounds(const json& value) {
  return value.is_array() && value.size() == 2 && std::all_of(value.begin(), value.end(), is_bound);
}

std::string described(const json& value) {
  if (!value.is_number()) return value.type_name();
  return std::isfinite(value.get<double>()) ? value.dump() : "a number that is not finite";
}

void check_object(const json& object, const std::string& prefix, std::span<const Key> keys);

void check_value(const json& value, const std::string& name, Kind kind) {
  const auto require = [&](bool fine, std::string_view takes) {
    if (!fine)
      throw UsageError(
          fmt::format("invalid scheduling hint '{}': expected {} or null, got {}", name, takes, described(value)));
  };
  if (value.is_null()) return;
  switch (kind) {
    case Kind::kCount:
      return require(is_count(value), "a positive integer");
    case Kind::kBounds:
      return require(is_bounds(value), "a pair (each value a positive integer or null)");
    case Kind::kAmount:
      return require(is_at_least(value, 0), "a non-negative number");
    case Kind::kOverlap:
      return require(is_at_least(value, 1), "a number of at least 1");
    case Kind::kFlag:
      return require(value.is_boolean(), "true, false");
    case Kind::kGradParams:
      require(value.is_object(), "an object");
      return check_object(value, name + ".", kGradParams);
    case Kind::kPerfParams:
      require(value.is_object(), "an object");
      return check_object(value, name + ".", kPerfParams);
  }
}

void check_object(const json& object, const std::string& prefix, std::span<const Key> keys) {
  for (const auto& [name, value] : object.items()) {
    const auto key = std::ranges::find(keys, std::string_view(name), &Key::name);
    if (key == keys.end()) {
      std::vector<std::string_view> known;
      std::ranges::transform(keys, std::back_inserter(known), &Key::name);
      throw UsageError(fmt::format("unknown scheduling hint '{}{}': expected one of {}", prefix, name,
                                   fmt::join(known.begin(), known.end(), ", ")));
    }
    check_value(value, prefix + name, key->kind);
  }
}

}  // namespace

void check_sched_hints(const json& hints) {
  if (!hints.is_object())
    throw UsageError(fmt::format("invalid scheduling hints: expected an object, got {}", hints.type_name()));
  check_object(hints, "", kHints);
}

}  // namespace adaptdl
