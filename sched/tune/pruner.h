// Pruners decide which trials continue, from what the trials have reported so far.
//
// A pruner compares trials at equal steps. A step is how far the training of a trial is, in scale-invariant samples if
// the program reports them (adaptdl/report.h). Rung k is the step first_rung * factor^k. A trial is at the rung with
// its first report of at least 95 % of that step, because reports come at the ends of epochs and not at exact steps.
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

#include "tune/study.h"

namespace adaptdl::sched::tune {

struct PrunerOptions {
  int factor = 4;                    // one in `factor` trials at a rung is promoted; >= 2
  std::optional<double> first_rung;  // the step of rung 0, > 0; none: the first step above 0 that is reported
  int brackets = 3;                  // of hyperband: number of different first rungs of trials; >= 1
  int startup_trials = 5;            // of median: nothing is pruned before this many trials have completed
};

enum class Verdict { kContinue, kPause, kPrune };

struct Judgement {
  Verdict verdict = Verdict::kContinue;
  int rung = 0;        // up to which the trial may train from now on; never lower than before
  std::string reason;  // one clause; empty if nothing changed
};

struct Promotion {
  int trial = 0;  // its number
  int rung = 0;   // up to which it may train
  std::string reason;
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  // Judges a running trial; called whenever it has reported.
  virtual Judgement judge(const Study& study, const Trial& trial) const = 0;
  // Returns the paused trial to continue next, before a new one is started. `last` is whether no other trial is running
  // and none will be started; if no trial has completed then, the best paused one is promoted whatever its rank. Trials
  // for whose number `busy` returns true have not finished pausing and are not considered.
  virtual std::optional<Promotion> promote(const Study& study, bool last,
                                           const std::function<bool(int)>& busy = {}) const = 0;
};

// Creates the pruner "asha", "hyperband", "median" or "none". Throws UsageError for another name.
std::unique_ptr<Pruner> make_pruner(std::string_view name, const PrunerOptions& options = {});

}  // namespace adaptdl::sched::tune
