// Accounts for the nodes that a job holds, in its status (kube/jobs/job_usage.h).
#pragma once

#include "kube/jobs/job.h"
#include "operator/jobs/job_status.h"
#include "operator/jobs/lifecycle.h"

namespace adaptdl::sched {

// Records in `status` that the job holds its nodes while any of its pods may still be running. `members_change`:
// whether the members of its group have changed since the group began.
void account_usage(const JobSituation& situation, const kube::Job& job, bool members_change, JobStatus& status);

}  // namespace adaptdl::sched
