#include "local/launch/restart_budget.h"

#include <utility>

namespace adaptdl::sched {

bool RestartBudget::spend() {
  if (used_ >= max_) return false;
  ++used_;
  return true;
}

bool RestartBudget::in_vain(const ExitStatus& status, const std::string& last_line, bool trained) {
  auto before = std::exchange(at_start_, std::nullopt);
  if (trained || last_line.empty()) return false;
  at_start_ = Failure{.status = status, .last_line = last_line};
  return before == at_start_;
}

}  // namespace adaptdl::sched
