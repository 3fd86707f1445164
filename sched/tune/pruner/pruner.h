// Pruners decide which trials continue, based on what the trials have reported so far.
//
// A pruner compares trials at equal steps. A step is the training progress of a trial, in scale-invariant samples if
// the program reports them (adaptdl/report.h). Rung k is the step first_rung * factor^k. A trial reaches the rung with
// its first report at 95% of that step or later, because programs report at the ends of epochs, not at exact steps.
//
// With asha and hyperband, a trial pauses at each rung and keeps its checkpoint until it is promoted, so that no trial
// continues only because it was early (ASHA: Li et al., MLSys 2020). Trials that are never promoted are pruned when the
// search ends. NaN ranks last.
//
// Threading: a Pruner is const and may be used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

struct PrunerOptions {
  int factor = 4;                    // one in `factor` trials at a rung is promoted; >= 2
  std::optional<double> first_rung;  // the step of rung 0, > 0; if unset, the first step above 0 that is reported
  int brackets = 3;                  // for hyperband: number of brackets, which differ in their first rung; >= 1
  int startup_trials = 5;            // for median: nothing is pruned before this many trials have completed
};

enum class Verdict { kContinue, kPause, kPrune };

struct Judgement {
  Verdict verdict = Verdict::kContinue;
  int rung = 0;        // the rung up to which the trial may train; never lower than before
  std::string reason;  // one clause; empty if nothing changed
};

struct Promotion {
  int trial = 0;  // its number
  int rung = 0;   // the rung up to which it may train
  std::string reason;
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  // Judges a running trial; called whenever it has reported.
  virtual Judgement judge(const Study& study, const Trial& trial) const = 0;
  // Returns the paused trial to continue next, before a new one is started. `last` means that no other trial is running
  // or will be started; if no trial has completed by then, the best paused one is promoted regardless of its rank.
  // Trials for which `busy` returns true are still pausing and are not considered.
  virtual std::optional<Promotion> promote(const Study& study, bool last,
                                           const std::function<bool(int)>& busy = {}) const = 0;
};

// Creates the pruner "asha", "hyperband", "median" or "none". Throws UsageError for any other name.
std::unique_ptr<Pruner> make_pruner(std::string_view name, const PrunerOptions& options = {});

}  // namespace adaptdl::sched::tune
