#include "tune/sampler/sampler.h"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "tune/sampler/grid.h"
#include "tune/sampler/qmc.h"
#include "tune/sampler/random_sampler.h"
#include "tune/sampler/tpe.h"

namespace adaptdl::sched::tune {
namespace {

template <typename Kind>
std::unique_ptr<Sampler> make(std::uint64_t seed) {
  return std::make_unique<Kind>(seed);
}

using MakeSampler = std::unique_ptr<Sampler> (*)(std::uint64_t);
constexpr std::array<std::pair<std::string_view, MakeSampler>, 4> kSamplers = {{
    {"tpe", make<TpeSampler>},
    {"random", make<RandomSampler>},
    {"grid", make<GridSampler>},
    {"qmc", make<QmcSampler>},
}};

}  // namespace

std::unique_ptr<Sampler> make_sampler(const std::string& name, std::uint64_t seed) {
  for (const auto& [known, make_known] : kSamplers)
    if (known == name) return make_known(seed);
  throw UsageError(fmt::format("invalid sampler '{}': expected tpe, random, grid, qmc or optuna:NAME", name));
}

}  // namespace adaptdl::sched::tune
