// Running the search of a study in the foreground, until it is done or the user stops it.
#pragma once

#include "command/tune_plan.h"
#include "tune/journal.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {

// Returns 0 when the study has all its trials, 1 if none of them has a value, and 143 if a signal stopped the search,
// with checkpoints of all trials. Another SIGINT kills the trials. REQUIRES that the directory is locked.
int search(const TunePlan& plan, sched::tune::Journal& journal, const sched::tune::StudyDirectory& directory);

}  // namespace adaptdl::cli
