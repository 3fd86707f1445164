// A sampler from Optuna, such as GPSampler. Optuna must be installed separately. A helper process with Optuna
// (share/adaptdl/tune/optuna_sampler.py) reads the study's storage and calls the sampler.
//
// As with all samplers, the parameters of a trial depend only on the study, the trial's number and the seed: for each
// trial, the helper creates a new Optuna sampler with a seed of its own. attributes() returns the values that a sampler
// stores in system attributes, such as the state of CMA-ES; the helper itself writes nothing.
//
// Errors: Error with the sampler's name if the sampler fails or its process ends; the search can then be resumed. The
// constructor and sample() block until the sampler has answered (python_helper.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tune/sampler/sampler.h"
#include "tuner/python_helper.h"

namespace adaptdl::sched::tune {

struct OptunaPlan {
  std::string name;  // the name of a class in optuna.samplers
  std::uint64_t seed = 0;
  std::string python = "python3";  // searched for in PATH unless it contains a slash
  std::filesystem::path script;
  std::string study;              // its name in the storage
  std::filesystem::path journal;  // the storage; if empty, the sampler is checked with an empty study
};

class OptunaSampler final : public Sampler {
 public:
  // Starts the helper, which tries out the sampler. Throws UsageError, whose message contains a remedy, if Python,
  // Optuna, the sampler or a package that the sampler requires does not exist. Throws HelperInterrupted as soon as a
  // stop signal arrives.
  explicit OptunaSampler(const OptunaPlan& plan);

  // The study must be the one in the storage, with all of its operations on disk.
  std::optional<Values> sample(const Space& space, const Study& study, int number, const Values& given) override;
  SamplerAttributes attributes() const override { return attributes_; }

 private:
  nlohmann::json ask(const nlohmann::json& request, const char* field);
  nlohmann::json suggest(const Parameter& parameter);

  const std::string name_;
  PythonHelper helper_;
  SamplerAttributes attributes_;
};

}  // namespace adaptdl::sched::tune
