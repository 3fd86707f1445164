// The options of `adaptdl submit`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "command/base/cluster_options.h"
#include "command/submit/submit_image.h"
#include "command/submit/submit_ray.h"
#include "kube/jobs/submission.h"

namespace adaptdl::cli {

struct SubmitOptions {
  ClusterOptions cluster;
  SubmitImageOptions image;
  kube::SubmissionOptions submission;
  std::string job_file, given_image, storage_class, proxy_port, min_replicas, max_replicas;
  std::string dry_run, output, timeout;
  bool follow = false, wait = false, json = false;
  RaySubmitOptions ray;
};

// Adds the options and arguments. `options` must outlive the app.
void add_submit_options(CLI::App& app, SubmitOptions& options);

// Checks the options for a cluster with the operator, and parses the numeric ones. Throws UsageError on the first
// invalid option.
void check_submit_options(SubmitOptions& options);

// Returns the options for a Ray cluster. Throws UsageError if any other option was given, because it would have no
// effect there.
RaySubmitOptions ray_options(const CLI::App& app, const SubmitOptions& options);

}  // namespace adaptdl::cli
