// Client of the supervisor, the HTTP service through which a job's replicas find each other (see docs/formats.md).
//
// Threading: discover() may be called from any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace adaptdl::supervisor {

// Requests the addresses of all replicas from `url`/discover/`job_id`/`group`. While the answer is 408 (not all
// replicas are up yet), repeats the request until `timeout` has passed. Sends a bearer token if env::supervisor_token()
// is set. Returns one address per rank, without a port. Throws UsageError if `job_id` is not `namespace/name`. Throws
// Error, naming the URL and the answer, on any other status, on a malformed body, if connections fail for 5 minutes, or
// at the timeout.
std::vector<std::string> discover(const std::string& url, const std::string& job_id, int group,
                                  std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace adaptdl::supervisor
