// Creates a study's sampler: one of adaptdl's own, or one from Optuna.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tune/sampler/sampler.h"
#include "tuner/study_settings.h"

namespace adaptdl::cli {

// `journal` is the study's storage; without it, an Optuna sampler sees a study without trials. Throws UsageError if the
// sampler is unknown, or cannot be used because Python or a package is missing. Throws HelperInterrupted if a stop
// signal arrives that the caller has blocked.
std::unique_ptr<sched::tune::Sampler> make_study_sampler(const sched::tune::StudySettings& settings,
                                                         const std::string& study = "",
                                                         const std::filesystem::path& journal = {});

// Throws UsageError if the settings name a sampler that cannot be used, or that cannot search the study's space.
void check_study_sampler(const sched::tune::StudySettings& settings);

}  // namespace adaptdl::cli
