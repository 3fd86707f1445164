// Counts the device-seconds of a study's trials from the figures that their runs report.
//
// A trial may have had several runs, each of which is counted once. The storage records the run that was counted last
// and the usage of the trial before that run. A later figure for the same run therefore replaces the earlier one, even
// if the search was killed between the two. A trial cannot be changed once it has ended, but its run may still be
// saving a checkpoint at that time, so later figures are stored in a study attribute.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tune/journal/journal.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

// User attributes of a trial.
inline constexpr char kDeviceSeconds[] = "adaptdl:device_seconds";  // device-seconds of all its runs
// The run that was counted last, and the device-seconds of the runs before it: {"run": ID, "before": SECONDS}.
inline constexpr char kCountedRun[] = "adaptdl:counted_run";

// Returns the study attribute that replaces a trial's kDeviceSeconds if its run continued after the trial had ended.
std::string late_device_seconds(int number);

// Return the stored device-seconds of one trial, or of all trials of the study; 0 if nothing was counted.
double device_seconds(const Study& study, const Trial& trial);
double device_seconds(const Study& study);

class DeviceLedger {
 public:
  // Begins with the figures in the storage.
  explicit DeviceLedger(const Study& study);

  // Counts a figure for the trial's run. Stores it if it is the run's last one or the count has grown enough.
  void take(Journal& journal, const Study& study, const Trial& trial, const RunUsage& usage);
  // Stores in the study the figures that the storage ignored because another process had ended the trial. Must be
  // called after each commit of figures that take() stored.
  void confirm(Journal& journal, const Study& study);
  // Returns the device-seconds of the whole study, including those that are not stored yet.
  double total() const noexcept { return total_; }

 private:
  struct Entry {
    std::string run;    // the run that was counted last
    double before = 0;  // device-seconds of the runs before it
    double total = 0, stored = 0;
    bool is_new = false;  // the storage does not contain `run` yet
  };

  Entry& entry_of(const Study& study, const Trial& trial, const std::string& run);

  std::map<int, Entry> entries_;  // by trial; only those with figures since the search began
  std::set<int> unconfirmed_;     // trials with figures since the last confirm()
  double total_;
};

}  // namespace adaptdl::sched::tune
