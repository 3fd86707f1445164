// Which trials continue, from what they have reported so far.
//
// A pruner compares trials at equal steps: how far a training is, in scale-invariant samples where the program says so
// (adaptdl/report.h). Rung k is the step min_resource * factor^k; a trial is at the rung with its first report of at
// least 95 % of that, because reports come at the ends of epochs and not at exact steps.
//
// With asha and hyperband a trial pauses at each rung and keeps its checkpoint until it is promoted, so that no trial
// continues only because it was early (ASHA: Li et al., MLSys 2020). Trials that are never promoted are pruned when the
// search ends. A value that is not a number ranks last.
//
// Threading: pure functions of the study; a Pruner is const and may be used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tune/study.h"

namespace adaptdl::sched::tune {

struct PrunerOptions {
  int factor = 4;                    // of the trials at a rung, one in so many is promoted; >= 2
  std::optional<double> first_rung;  // the step of rung 0, > 0; none: the first report of the study's first trial
  int brackets = 3;                  // of hyperband: how many different first rungs trials have; >= 1
  int startup_trials = 5;            // of median: nothing is pruned before so many trials have completed
};

enum class Verdict { kContinue, kPause, kPrune };

struct Judgement {
  Verdict verdict = Verdict::kContinue;
  int rung = 0;        // to which the trial may train from now on; the highest that it was allowed before, at least
  std::string reason;  // one clause; empty where nothing changed
};

struct Promotion {
  int trial = 0;  // its number
  int rung = 0;   // to which it may train
  std::string reason;
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  // For a trial that is running, whenever it has reported.
  virtual Judgement judge(const Study& study, const Trial& trial) const = 0;
  // The paused trial to continue next, before a new one is started. `last`: no other trial is running, and none will be
  // started; if none has completed then, the best one is promoted whatever its rank.
  // Trials that are `busy`, by number, are not considered: they have not finished pausing.
  virtual std::optional<Promotion> promote(const Study& study, bool last,
                                           const std::function<bool(int)>& busy = {}) const = 0;
};

// "asha", "hyperband", "median" or "none". Throws UsageError for another name.
std::unique_ptr<Pruner> make_pruner(std::string_view name, const PrunerOptions& options = {});

}  // namespace adaptdl::sched::tune
