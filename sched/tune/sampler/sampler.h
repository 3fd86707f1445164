// Samplers choose the parameters of a study's next trial.
//
// A sampler's result depends only on the study, the trial's number and the seed, and is the same on any processor.
// Samplers optimize a study's first objective. Trials that run at the same time get different parameters, because their
// numbers differ and because TPE and grid search avoid the parameters of running trials.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// System attributes, in which Optuna's samplers store what they need for later trials.
struct SamplerAttributes {
  std::map<std::string, nlohmann::json> trial, study;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Returns the parameters of trial `number`: all that apply, except fixed ones. The result includes `given`, values
  // that are already decided, for example by `adaptdl tune enqueue`. Returns nullopt if the space is exhausted (grid
  // only).
  virtual std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) = 0;
  // Returns the attributes that must be stored together with the last result of sample().
  virtual SamplerAttributes attributes() const { return {}; }
};

// Creates a sampler by its name: "tpe", "random", "grid" or "qmc". Throws UsageError for any other name.
//   tpe     multivariate tree-structured Parzen estimator with constant liar, with the defaults of Optuna 5
//   random  independent uniform draws
//   grid    every combination once, in a random order; sample() throws UsageError if the space is infinite
//   qmc     a scrambled Sobol' sequence: fills the space more evenly than random draws
// For Optuna's samplers, see tuner/optuna_sampler.h.
std::unique_ptr<Sampler> make_sampler(const std::string& name, std::uint64_t seed);

}  // namespace adaptdl::sched::tune
