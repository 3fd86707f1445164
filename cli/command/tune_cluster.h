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

// Sets what the options of a new study say of its jobs. Reads the job file. Throws UsageError on the first invalid
// option or file, and Error if no cluster is configured.
void set_cluster_settings(TunePlan& plan, const TuneOptions& options);

// Throws UsageError if an option only has a meaning with --cluster, but --cluster is not given.
void refuse_cluster_options(const TuneOptions& options);
// Throws UsageError if an option is given that the jobs of a study, which continues, cannot have changed.
void check_cluster_resume(const TuneOptions& options);

// The name as that of a study whose trials are jobs: other characters than those of job names are replaced.
std::string job_study_name(std::string name);

// A client of the study's cluster. Throws Error if the kubeconfig does not have it any more. REQUIRES
// plan.settings.cluster, as do the functions below.
std::unique_ptr<kube::Client> cluster_client(const TunePlan& plan);

// Has the API server check the jobs of a new study without creating any, and throws Error if it refuses them or other
// jobs have their names.
void check_cluster(const TunePlan& plan, kube::Client& client);

// Throws as kube::Client does.
std::unique_ptr<sched::tune::ClusterTrialRunner> make_cluster_runner(const TunePlan& plan, kube::Client& client,
                                                                     const sched::tune::StudyDirectory& directory,
                                                                     std::function<void(std::string_view)> notice);

}  // namespace adaptdl::cli
