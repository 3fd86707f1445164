// Which parameters the next trial of a study has.
//
// Samplers are functions of the study, the number of the trial and their seed: the same ones give the same answer, on
// any processor. They work on the first objective of a study. Trials that run at the same time differ: by their
// numbers, and because those of TPE and of the grid keep away from what is running.
//
// Threading: a Sampler is used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tune/study.h"

namespace adaptdl::sched::tune {

// System attributes, in which samplers of Optuna keep what they need for later trials.
struct SamplerAttributes {
  std::map<std::string, nlohmann::json> trial, study;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The parameters of trial `number`: all that apply, fixed ones not included. `given` has those that are decided
  // already, such as by `adaptdl tune enqueue`, and is part of the answer. None: the space is exhausted (grid only).
  virtual std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) = 0;
  // What must be stored together with the parameters that sample() returned last.
  virtual SamplerAttributes attributes() const { return {}; }
};

// A sampler by its name: "tpe", "random", "grid" or "qmc". Throws UsageError for another name.
//   tpe     multivariate tree-structured Parzen estimator with constant liar, with the defaults of Optuna 5
//   random  independent uniform draws
//   grid    every combination once, in a random order; sample() throws UsageError if the space is infinite
//   qmc     a scrambled Sobol' sequence: fills the space more evenly than random draws
// Those of Optuna are made by tuner/optuna_sampler.h.
std::unique_ptr<Sampler> make_sampler(const std::string& name, std::uint64_t seed);

}  // namespace adaptdl::sched::tune
