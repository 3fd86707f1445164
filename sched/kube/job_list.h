// Lists the jobs of a cluster in their current state.
//
// Threading: may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/job_book.h"

namespace adaptdl::kube {

struct JobQuery {
  std::string name_space;          // empty: all namespaces
  std::string selector;            // a label selector
  std::vector<std::string> names;  // only these jobs of the namespace; empty: all jobs
};

// Lists jobs and pods concurrently, then events if they could explain more. Names without a job are ignored. Throws
// like Client.
//
// Jobs given by name are read from the server's store. Everything else comes from its watch cache, which may be a
// moment old but costs the server much less. If the store counts another number of jobs than the cache has, the jobs
// are read from the store, so that a job created a moment ago is listed.
std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now);

}  // namespace adaptdl::kube
