// Waits until submitted jobs have ended.
//
// Threading: `notice` may be called from another thread, but only by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "command/base/cluster_options.h"
#include "kube/api/client.h"

namespace adaptdl::cli {

struct SubmittedJob {
  JobName name;
  std::string uid;
};

struct WaitOptions {
  std::optional<std::chrono::milliseconds> max_time;  // nullopt for no limit
  std::function<void(const std::string&)> notice;     // receives, for example, why a job is not running
};

// Returns when all jobs have succeeded. Throws Error if a job failed, was deleted, or did not end in time, and
// http::Stopped if a stop is requested; jobs that have not ended continue.
void wait_for_jobs(kube::Client& client, const std::vector<SubmittedJob>& jobs, const WaitOptions& options,
                   const std::stop_token& stop);

// Like wait_for_jobs(), but for one job, and also writes the output of the job's replicas to standard output, like
// `adaptdl logs --follow`.
void follow_job(kube::Client& client, const SubmittedJob& job, const WaitOptions& options, const std::stop_token& stop);

}  // namespace adaptdl::cli
