// Client of the supervisor, the HTTP service that tells the replicas of a job about each other (protocol:
// docs/formats.md).
//
// Threading: the functions keep no state and may be called from any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace adaptdl::supervisor {

// Asks `url`/discover/`job_id`/`group` for the addresses of all replicas by rank, as often as it answers 408 (not all
// are up yet), until `timeout` has passed. A bearer token is sent if env::supervisor_token() is set. Returns bare
// addresses, one a rank. Throws UsageError on a job that is not `namespace/name`, and Error, naming the URL and the
// answer, on any other status, on a malformed body, if connections fail for 5 minutes on end, and at the timeout.
std::vector<std::string> discover(const std::string& url, const std::string& job_id, int group,
                                  std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace adaptdl::supervisor
