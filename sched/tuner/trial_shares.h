// How the trials of a search share the devices.
//
//   goodput  as the scheduling policy of the runs finds: by what more devices would do for the goodput of each
//   promise  the same, with the goodput of each trial weighed by its chance to end as the best one (tune/promise.h)
//   equal    all trials that train have the same number of replicas; what remains goes to those with the lowest numbers
//
// A new weight is sent to a run when it differs from the last one by more than kWeightChange, so that reports of
// results do not make the devices move all the time.
//
// Threading: one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tune/study.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

enum class ShareMode { kGoodput, kPromise, kEqual };

// None for another name.
std::optional<ShareMode> find_share_mode(std::string_view name);

// The factor of an increase or decrease.
inline constexpr double kWeightChange = 1.25;

struct ShareRule {
  ShareMode mode = ShareMode::kGoodput;
  int devices = 1;                         // of all trials
  int min_replicas = 1, max_replicas = 1;  // of a trial
};

// The replicas of each of so many trials, with `equal`, the oldest first.
std::vector<int> equal_replicas(const ShareRule& rule, std::size_t trials);

class TrialShares {
 public:
  // The runner must outlive this.
  TrialShares(const ShareRule& rule, TrialRunner& runner) : rule_(rule), runner_(runner) {}

  // The trial has a new run, which has the default share.
  void started(int number);
  // Sends what is to change. `running`: the trials that train, by number, in ascending order. `reported`: whether any
  // has reported since the last call. REQUIRES that the runs of all of them are active.
  void update(const Study& study, const std::vector<int>& running, bool reported);

 private:
  std::map<int, RunShare> shares(const Study& study, const std::vector<int>& running) const;

  const ShareRule rule_;
  TrialRunner& runner_;
  std::vector<int> running_;      // at the last update
  std::map<int, RunShare> sent_;  // to the runs of these
};

}  // namespace adaptdl::sched::tune
