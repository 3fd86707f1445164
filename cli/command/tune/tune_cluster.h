// Studies whose trials are cluster jobs (`adaptdl tune --cluster`).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "cluster_tuner/cluster_trial_runner.h"
#include "command/tune/tune_plan.h"
#include "kube/api/client.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {

// Fills in the part of the plan that a new study's jobs need, from the options and the job file. Throws UsageError if
// an option or the file is invalid, and Error if no cluster is configured.
void set_cluster_settings(TunePlan& plan, const TuneOptions& options);

// Throws UsageError if an option is given that requires --cluster. REQUIRES that --cluster is not given.
void refuse_cluster_options(const TuneOptions& options);
// Throws UsageError if an option is given that cannot change when a study with jobs is resumed.
void check_cluster_resume(const TuneOptions& options);

// Returns the name for a study whose trials are jobs: replaces characters that are invalid in job names.
std::string job_study_name(std::string name);

// Returns a client for the study's cluster. Throws Error if the kubeconfig no longer contains the cluster. REQUIRES
// plan.settings.cluster, as do the functions below.
std::unique_ptr<kube::Client> cluster_client(const TunePlan& plan);

// Lets the API server check a new study's jobs without creating them. Throws Error if the API server rejects the jobs,
// or if other jobs have the same names.
void check_cluster(const TunePlan& plan, kube::Client& client);

// Creates the runner for the study's trials. Throws the same errors as kube::Client.
std::unique_ptr<sched::tune::ClusterTrialRunner> make_cluster_runner(const TunePlan& plan, kube::Client& client,
                                                                     const sched::tune::StudyDirectory& directory,
                                                                     std::function<void(std::string_view)> notice);

}  // namespace adaptdl::cli
