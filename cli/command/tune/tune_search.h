// Runs a study's search in the foreground, until it is done or the user stops it.
#pragma once

#include "command/tune/tune_plan.h"
#include "tune/journal/journal.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {

// Throws UsageError if the study has used up its device-hours and still has trials to run.
void check_device_hours(const TunePlan& plan, const sched::tune::Study& study);

// Returns 0 if all of the study's trials have ended and one of them has a value, 1 if all have ended without a value,
// and 143 if a signal or a limit stopped the search, after all trials have saved checkpoints. A second SIGINT
// kills the trials. Throws UsageError if the device-hours were used up before the search began. REQUIRES that the
// directory is locked.
int search(const TunePlan& plan, sched::tune::Journal& journal, const sched::tune::StudyDirectory& directory);

}  // namespace adaptdl::cli
