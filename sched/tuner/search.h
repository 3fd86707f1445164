// A search over hyperparameters: it starts trials, reads their results, and pauses, continues and ends them as the
// pruner decides, until the study has the planned number of trials.
//
// Everything that decisions depend on is in the study's storage, and a decision is stored before it is carried out. A
// search that is killed can therefore be resumed as if nothing had happened: trials that were running start again from
// their checkpoints, and results that are already in the storage are not stored again.
//
// A trial that fails or is stopped from outside keeps its checkpoints until the study has ended.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tune/journal/journal.h"
#include "tune/pruner/pruner.h"
#include "tune/sampler/sampler.h"
#include "tune/study/space.h"
#include "tuner/device_ledger.h"
#include "tuner/result_writer.h"
#include "tuner/search_event.h"
#include "tuner/trial_runner.h"
#include "tuner/trial_shares.h"

namespace adaptdl::sched::tune {

struct SearchPlan {
  std::string study;  // must exist in the journal
  std::string metric;
  Space space;
  int trials = 64;               // in total, including those of earlier searches
  int parallel = 1;              // max. simultaneous trials, not counting those about to end; with them, twice as many
  std::optional<Time> deadline;  // no trial is started after this time, and running ones are stopped
  ShareRule share = {};
  // The limit for all searches of the study together. Once it is reached, the search stops in the same way as at the
  // deadline.
  std::optional<double> max_device_seconds{};
};

class Search {
 public:
  // All references must outlive the search. `observer` receives each event of this search once. There are no events for
  // trials that ended before this search or that an Optuna worker runs.
  Search(SearchPlan plan, Journal& journal, Sampler& sampler, const Pruner& pruner, TrialRunner& runner,
         SearchObserver observer);

  // Does everything that can be done without waiting for trials, and returns whether the search continues. Throws Error
  // if the storage, the sampler or the runner fails, or if the first trials have all failed.
  bool advance(Time now);
  // Makes all trials save a checkpoint and end; advance() returns false once they have ended. The next search continues
  // them. The first nonempty reason is kept.
  void stop(const std::string& reason = "");
  const std::string& stop_reason() const noexcept { return stop_reason_; }
  // Returns whether the search is complete, as opposed to stopped.
  bool finished() const noexcept { return finished_; }
  // Return whether the search stopped because of `max_device_seconds`, and whether it has started any trial.
  bool used_up() const noexcept { return used_up_; }
  bool started() const noexcept { return started_; }
  // Returns the device-seconds of all trials so far, including earlier searches.
  double device_seconds() const noexcept { return ledger_.total(); }

 private:
  const Study& study() const;
  void stop_at_limit(const std::string& reason);
  void stop_ended_trials();
  void stop_at_limits(Time now);
  bool has_next() const;
  void report_ends();
  bool any_active() const;
  bool take_events();
  void take_end(int number, const TrialEnd& end);
  void decide_end(int number, const TrialEnd& end);
  void continue_killed(const Trial& trial, const std::string& reason);
  void end_trial(const Trial& trial, TrialState state, const std::string& reason);
  void judge(int number);
  bool nothing_else_trains(std::optional<int> number = {}) const;
  std::optional<Promotion> promoted_at_once(const Trial& trial, int rung) const;
  void share_devices(bool reported);
  bool may_create() const;
  bool gives_up() const;
  void finish();
  // The following functions are defined in search_start.cc.
  bool start_next();
  bool start_left();
  bool start_new();
  void start(int number, std::optional<Values> drawn, const std::string& why);
  Values complete_parameters(int number, std::optional<Values> drawn);

  const SearchPlan plan_;
  Journal& journal_;
  Sampler& sampler_;
  const Pruner& pruner_;
  TrialRunner& runner_;
  const SearchObserver observer_;

  DeviceLedger ledger_;
  std::map<int, std::string> to_continue_;  // trials whose process is gone, and why they continue
  std::set<int> leaving_;                   // active trials that were asked to end
  bool stopping_ = false, finished_ = false, exhausted_ = false;
  bool used_up_ = false, started_ = false;
  ResultWriter results_;
  TrialShares shares_;
  std::vector<bool> ended_;   // by trial: whether its end was reported or preceded this search
  int failed_ = 0;            // number of failed trials in this search
  std::string last_failure_;  // reason of the last failed trial
  std::string failure_;       // error that makes the search stop
  std::string stop_reason_;
};

}  // namespace adaptdl::sched::tune
