// Lists a cluster's jobs in their current state.
#pragma once

#include <string>
#include <vector>

#include "kube/api/client.h"
#include "kube/jobs/job_index.h"

namespace adaptdl::kube {

struct JobQuery {
  std::string name_space;          // empty: all namespaces
  std::string selector;            // a label selector
  std::vector<std::string> names;  // only these jobs of the namespace; empty: all jobs
};

// Lists jobs and pods concurrently, and then events if they could explain a job's state further. Names for which no job
// exists are ignored. Throws the same errors as Client.
//
// Jobs given by name are read from the server's store. Everything else is read from the server's watch cache, which may
// be slightly out of date but costs the server much less. If the number of jobs in the store differs from the number in
// the cache, the jobs are read from the store, so that a job that was just created is listed.
std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now);

}  // namespace adaptdl::kube
