// Divides the devices among the trials of a search.
//
//   goodput  according to the scheduling policy, by the goodput that each run would gain from more devices
//   promise  the same, with each trial's goodput weighted by its chance of ending as the best trial
//            (tune/pruner/promise.h)
//   equal    the same number of devices for each training trial; the lowest-numbered trials get the remainder
//
// A new weight is sent to a run when it differs from the last one sent by more than a factor of kWeightChange, so that
// new results do not move devices all the time.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tune/study/study.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

enum class ShareMode { kGoodput, kPromise, kEqual };

// Returns nullopt for an unknown name.
std::optional<ShareMode> find_share_mode(std::string_view name);

// The factor by which a weight must increase or decrease to be sent.
inline constexpr double kWeightChange = 1.25;

struct ShareRule {
  ShareMode mode = ShareMode::kGoodput;
  int devices = 1;                         // number of devices for all trials together
  int min_replicas = 1, max_replicas = 1;  // bounds for each trial
};

// Returns, for the mode `equal`, the number of replicas of each of `trials` trials, the oldest trial first.
std::vector<int> equal_replicas(const ShareRule& rule, std::size_t trials);

class TrialShares {
 public:
  // The runner must outlive this object.
  TrialShares(const ShareRule& rule, TrialRunner& runner) : rule_(rule), runner_(runner) {}

  // Records that the trial has a new run, which has the default share.
  void started(int number);
  // Sends the shares that change. `running` contains the numbers of the training trials, in ascending order; `reported`
  // is true if any of them has reported since the last call. REQUIRES that the runs of all of them are active.
  void update(const Study& study, const std::vector<int>& running, bool reported);

 private:
  std::map<int, RunShare> shares(const Study& study, const std::vector<int>& running) const;

  const ShareRule rule_;
  TrialRunner& runner_;
  std::vector<int> running_;      // running trials at the last update
  std::map<int, RunShare> sent_;  // by trial: the share that was sent to its run
};

}  // namespace adaptdl::sched::tune
