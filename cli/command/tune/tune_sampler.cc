#include "command/tune/tune_sampler.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "adaptdl/error.h"
#include "command/base/installed_data.h"
#include "tuner/optuna_sampler.h"

namespace adaptdl::cli {
namespace {

namespace tune = sched::tune;

// Prefix of Optuna samplers' names.
constexpr std::string_view kOptuna = "optuna:";

std::unique_ptr<tune::Sampler> make_optuna_sampler(const tune::StudySettings& settings, const std::string& study,
                                                   const std::filesystem::path& journal) {
  const std::filesystem::path directory = installed_data("tune");
  if (directory.empty()) throw UsageError("share/adaptdl/tune not found; reinstall adaptdl");
  const char* const python = std::getenv("ADAPTDL_PYTHON");
  return std::make_unique<tune::OptunaSampler>(
      tune::OptunaPlan{.name = settings.sampler.substr(kOptuna.size()),
                       .seed = settings.seed,
                       .python = python == nullptr || *python == '\0' ? "python3" : python,
                       .script = directory / "optuna_sampler.py",
                       .study = study,
                       .journal = journal});
}

}  // namespace

std::unique_ptr<tune::Sampler> make_study_sampler(const tune::StudySettings& settings, const std::string& study,
                                                  const std::filesystem::path& journal) {
  try {
    if (settings.sampler.starts_with(kOptuna)) return make_optuna_sampler(settings, study, journal);
    return tune::make_sampler(settings.sampler, settings.seed);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("tune: {}", error.what()));
  }
}

void check_study_sampler(const tune::StudySettings& settings) {
  const auto sampler = make_study_sampler(settings);
  tune::Study study;
  study.directions = {tune::Direction::kMinimize};
  try {
    sampler->sample(settings.space, study, 0, {});
  } catch (const Error& error) {
    throw UsageError(fmt::format("tune: {}", error.what()));
  }
}

}  // namespace adaptdl::cli
