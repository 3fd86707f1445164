// Staying with jobs that were submitted until they have ended.
//
// Threading: plain functions, which return when their work is done; `notice` is called by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "command/cluster_options.h"
#include "kube/client.h"

namespace adaptdl::cli {

struct SubmittedJob {
  JobName name;
  std::string uid;
};

struct WaitOptions {
  std::optional<std::chrono::milliseconds> longest;  // none: for ever
  std::function<void(const std::string&)> notice;    // what keeps a job from running, and the like
};

// Returns when all have succeeded. Throws Error for a job that failed, was deleted, or had not ended in time, and
// http::Stopped at a stop, after which jobs go on.
void wait_for_jobs(kube::Client& client, const std::vector<SubmittedJob>& jobs, const WaitOptions& options,
                   const std::stop_token& stop);

// The same for one, whose replicas' output goes to standard output, as `adaptdl logs --follow` shows it.
void follow_job(kube::Client& client, const SubmittedJob& job, const WaitOptions& options, const std::stop_token& stop);

}  // namespace adaptdl::cli
