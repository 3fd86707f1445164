// Options that choose the cluster of a command, and the lookup of the runs and jobs that are named to it.
//
// All commands follow one rule: a name is that of a run of this machine or of a job of the cluster, and if it is both,
// the command asks which. A job in another namespace may be written as NAMESPACE/NAME, as `ls -A` prints it.
//
// Threading: used by one thread at a time.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "kube/access.h"
#include "kube/client.h"
#include "kube/missing_object.h"
#include "local/run_record.h"

namespace adaptdl::cli {

struct ClusterOptions {
  std::string name_space, context;
  bool local = false, cluster = false;  // never both
};

// Adds -n, --namespace and --context.
void add_context_options(CLI::App& app, ClusterOptions& options);
// Adds --local and --cluster, for a command that accepts both runs and jobs.
void add_place_options(CLI::App& app, ClusterOptions& options);

// Returns how to reach the chosen cluster; null with --local, or if no cluster is configured. Throws Error.
std::optional<kube::Access> cluster_access(const ClusterOptions& options);
// Does the same for a command that needs a cluster. Throws Error if none is configured.
kube::Access require_cluster(const ClusterOptions& options);

// Identifies a job by its namespace and name.
struct JobName {
  std::string name_space, name;
};
// Parses "name", in the namespace of `access`, or "namespace/name". Throws UsageError on anything else.
JobName parse_job_name(const std::string& text, const kube::Access& access);

// Returns the AdaptDLJob. Throws Error if it does not exist, or if the cluster does not have the resource AdaptDLJob.
nlohmann::json get_job(kube::Client& client, const JobName& name);
// Does the same, but returns null if the job does not exist.
std::optional<nlohmann::json> find_job(kube::Client& client, const JobName& name);

// Returns the message that replaces the 404 of a cluster without the resource AdaptDLJob.
std::string no_such_kind(const kube::Client& client);

// Calls `work`. A 404 that names no object, from a cluster without AdaptDLJobs, becomes an Error that names it.
template <typename Work>
void with_job_kind(const kube::Client& client, const Work& work) {
  try {
    work();
  } catch (const kube::ApiError& error) {
    if (error.not_found() && !kube::is_missing_object(error)) throw Error(no_such_kind(client));
    throw;
  }
}

// What a name refers to: `run`, or `job` of `client`.
struct Target {
  std::optional<sched::RunEntry> run;
  std::shared_ptr<kube::Client> client;
  JobName name;
  nlohmann::json job;
};

// Finds the run or job of that name. An exact name takes precedence over the beginning of a run's name. Runs are found
// even if the cluster is unreachable. Throws UsageError if the name is ambiguous, Error if it is unknown.
Target find_target(const ClusterOptions& options, const std::string& name);
// Does the same for several names, with one client.
std::vector<Target> find_targets(const ClusterOptions& options, const std::vector<std::string>& names);

}  // namespace adaptdl::cli
