// The jobs of a cluster as they are now.
//
// Threading: a plain function, to be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/job_book.h"

namespace adaptdl::kube {

struct JobQuery {
  std::string name_space;          // empty: all
  std::string selector;            // of labels
  std::vector<std::string> names;  // only these, of that namespace; none: all
};

// Jobs, pods and (where they could tell more) events, listed at the same time. A name of which there is no job is
// passed over. Throws as Client does.
//
// What is asked for by name is read from the store. The rest comes from what the API server has in memory, which may be
// a moment old and is a small part of the work for it; of jobs the store tells the number, and if that is another, they
// are read from there, so that what was created a moment ago is listed.
std::vector<JobView> list_jobs(Client& client, const JobQuery& query, Time now);

}  // namespace adaptdl::kube
