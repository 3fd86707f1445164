#include "operator/jobs/lifecycle.h"

#include "kube/api/json_fields.h"
#include "operator/jobs/job_planner.h"

namespace adaptdl::sched {

Plan plan_job(const JobSituation& situation, const LifecycleSettings& settings) {
  if (!kube::bool_field(situation.job, {"spec", "suspend"}, false)) return JobPlanner(situation, settings).run();
  // A suspended job must wait, regardless of any decision that the allocator made before it knew of the suspension.
  JobSituation suspended = situation;
  suspended.decision = JobDecision{{}, JobPlanner::kWhySuspended, true, ""};
  return JobPlanner(suspended, settings).run();
}

}  // namespace adaptdl::sched
