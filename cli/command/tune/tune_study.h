// Opens existing studies, and defines the verbs of `adaptdl tune` that change a study: stop and enqueue.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tune/journal/journal.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {

struct OpenStudy {
  sched::tune::StudyDirectory directory;
  std::unique_ptr<sched::tune::Journal> journal;
  std::string metric;  // "value" for a study that another tool created

  // Returns the study's current state in the storage. Throws Error if the study was deleted from the storage.
  const sched::tune::Study& study() const;
};

// Throws UsageError if the study does not exist.
OpenStudy open_study(const std::string& name);

// Adds the verbs to the command.
void add_study_changes(CLI::App& app);

}  // namespace adaptdl::cli
