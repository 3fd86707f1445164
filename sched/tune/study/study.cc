#include "tune/study/study.h"

namespace adaptdl::sched::tune {

bool is_paused(const Trial& trial) {
  if (trial.state != TrialState::kRunning) return false;
  const auto activity = trial.user_attributes.find(kActivity);
  return activity != trial.user_attributes.end() && activity->second == kPaused;
}

bool is_running(const Trial& trial) { return trial.state == TrialState::kRunning && !is_paused(trial); }

}  // namespace adaptdl::sched::tune
