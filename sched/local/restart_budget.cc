#include "local/restart_budget.h"

#include <algorithm>
#include <utility>

#include "local/launch_plan.h"

namespace adaptdl::sched {

bool RestartBudget::spend() {
  if (used_ >= max_) return false;
  ++used_;
  return true;
}

std::chrono::milliseconds RestartBudget::back_off(Time now) {
  const bool forgotten = pause_.count() == 0 || now - failed_at_ >= kBackOffMemory;
  pause_ = forgotten ? kFirstBackOff : std::min(pause_ * 2, kLongestBackOff);
  failed_at_ = now;
  return pause_;
}

bool RestartBudget::in_vain(const ExitStatus& status, const std::string& last_line, bool trained) {
  auto before = std::exchange(at_start_, std::nullopt);
  if (trained || last_line.empty()) return false;
  at_start_ = Failure{.status = status, .last_line = last_line};
  return before == at_start_;
}

}  // namespace adaptdl::sched
