// Studies whose trials are jobs of a cluster (`adaptdl tune --cluster`).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "cluster_tuner/cluster_trial_runner.h"
#include "command/tune_plan.h"
#include "kube/client.h"
#include "tuner/study_directory.h"

namespace adaptdl::cli {

// Sets the settings of a new study's jobs from the options and the job file. Throws UsageError on the first invalid
// option or file, and Error if no cluster is configured.
void set_cluster_settings(TunePlan& plan, const TuneOptions& options);

// Throws UsageError if an option is given that needs --cluster. REQUIRES that --cluster is not given.
void refuse_cluster_options(const TuneOptions& options);
// Throws UsageError if an option is given that cannot change for the jobs of a study that is resumed.
void check_cluster_resume(const TuneOptions& options);

// Returns the name for a study whose trials are jobs: characters that names of jobs cannot have are replaced.
std::string job_study_name(std::string name);

// Returns a client of the study's cluster. Throws Error if the kubeconfig does not have the cluster any more. REQUIRES
// plan.settings.cluster, as do the functions below.
std::unique_ptr<kube::Client> cluster_client(const TunePlan& plan);

// Has the API server check the jobs of a new study without creating any. Throws Error if it refuses them, or if other
// jobs have their names.
void check_cluster(const TunePlan& plan, kube::Client& client);

// Creates the runner of the study's trials. Throws what kube::Client throws.
std::unique_ptr<sched::tune::ClusterTrialRunner> make_cluster_runner(const TunePlan& plan, kube::Client& client,
                                                                     const sched::tune::StudyDirectory& directory,
                                                                     std::function<void(std::string_view)> notice);

}  // namespace adaptdl::cli
