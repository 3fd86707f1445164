#include "operator/jobs/usage_account.h"

#include <algorithm>

#include "operator/jobs/group_end.h"

namespace adaptdl::sched {

void account_usage(const JobSituation& situation, const kube::Job& job, bool members_change, JobStatus& status) {
  const kube::Time now = situation.now;
  Allocation nodes;
  kube::Time begin = now, end{};
  int ended = 0;
  for (const PodFacts& pod : situation.pods) {
    if (pod.live() && !is_gone(situation, pod)) {
      nodes.push_back(pod.node);
      begin = std::min(begin, pod.created.value_or(begin));
    } else if (pod.group == job.group && pod.last_ended) {
      ++ended;
      end = std::max(end, *pod.last_ended);
    }
  }
  // It is not known when deleted pods ended, and the clock of a node may be ahead.
  if (nodes.empty()) return status.release(ended > 0 && ended == job.replicas ? std::min(end, now) : now);
  if (!situation.usage_rate) return;
  if (status.holds()) {
    if (members_change && job.phase == "Running") status.change_hold(situation.usage_rate(nodes));
    return;
  }
  // The pods of a group are not created all at once, so a starting or running job holds its whole allocation. In other
  // phases, the allocation belongs to the next group.
  const bool whole = job.phase == "Starting" || job.phase == "Running";
  // The operator may have been replaced after it had created the first pod.
  const bool first = job.phase == "Starting" && !status.created();
  status.hold(situation.usage_rate(whole ? job.allocation : nodes), first ? begin : now);
}

}  // namespace adaptdl::sched
