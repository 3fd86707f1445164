// The device-seconds of a study's trials, counted from what their runs report.
//
// A trial may have had several runs, each of which counts once: the storage has the run that was counted last and what
// the trial had used before it, so that a later figure of the same run replaces an earlier one, also after the search
// was killed. A trial cannot be changed once it has ended, but its run may still be saving a checkpoint then: the
// figures from then on are in an attribute of the study.
//
// Threading: one thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tune/journal.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

// User attributes of a trial.
inline constexpr char kDeviceSeconds[] = "adaptdl:device_seconds";  // of all its runs
// The run that was counted last, and the device-seconds of those before it: {"run": ID, "before": SECONDS}.
inline constexpr char kCountedRun[] = "adaptdl:counted_run";

// The user attribute of a study that replaces kDeviceSeconds of a trial whose run continued after the trial had ended.
std::string late_device_seconds(int number);

// What the storage has of a trial of the study, and of all of them. 0: nothing was counted.
double device_seconds(const Study& study, const Trial& trial);
double device_seconds(const Study& study);

class DeviceLedger {
 public:
  // Begins with what the storage has.
  explicit DeviceLedger(const Study& study);

  // Counts a figure of the trial's run, and stores it if it is the last one of the run or has changed by enough.
  void take(Journal& journal, const Study& study, const Trial& trial, const RunUsage& usage);
  // Stores in the study what the storage ignored because another process had ended the trial. Call it after each commit
  // of what take() stored.
  void confirm(Journal& journal, const Study& study);
  // Of the whole study, in device-seconds; what is not stored yet included.
  double total() const noexcept { return total_; }

 private:
  struct Entry {
    std::string run;    // counted last
    double before = 0;  // device-seconds of the runs before it
    double total = 0, stored = 0;
    bool is_new = false;  // the storage does not have `run` yet
  };

  Entry& entry_of(const Study& study, const Trial& trial, const std::string& run);

  std::map<int, Entry> entries_;  // by trial; of those with figures since the search began
  std::set<int> unconfirmed_;     // trials with figures since the last confirm()
  double total_;
};

}  // namespace adaptdl::sched::tune
