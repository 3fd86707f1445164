#include "local/launch/restart_budget.h"

#include <utility>

namespace adaptdl::sched {

bool RestartBudget::spend() {
  if (used_ >= max_) return false;
  ++used_;
  return true;
}

bool RestartBudget::in_vain(const ReplicaEnd& failure, bool trained) {
  auto before = std::exchange(at_start_, std::nullopt);
  if (trained || failure.lost || failure.last_lines.empty() || failure.last_lines.back().empty()) return false;
  at_start_ = Failure{.status = failure.status, .last_line = failure.last_lines.back()};
  return before == at_start_;
}

}  // namespace adaptdl::sched
