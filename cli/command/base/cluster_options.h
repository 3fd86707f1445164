// Options that select a command's cluster, and the lookup of runs and jobs by name.
//
// All commands follow one rule: a name refers to a local run or to a cluster job. If both exist, the command fails and
// requires --local or --cluster. A job in another namespace may be written as NAMESPACE/NAME, as `ls -A` prints it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/error.h"
#include "kube/api/access.h"
#include "kube/api/client.h"
#include "local/record/run_record.h"

namespace adaptdl::cli {

struct ClusterOptions {
  std::string name_space, context;
  bool local = false, cluster = false;  // never both
};

// Adds -n, --namespace and --context.
void add_context_options(CLI::App& app, ClusterOptions& options);
// Adds --local and --cluster, for a command that accepts both runs and jobs.
void add_place_options(CLI::App& app, ClusterOptions& options);

// Returns how to reach the selected cluster; nullopt with --local, or if no cluster is configured. Throws Error.
std::optional<kube::Access> cluster_access(const ClusterOptions& options);
// Like cluster_access(), but for a command that requires a cluster: throws Error if no cluster is configured.
kube::Access require_cluster(const ClusterOptions& options);

// Identifies a job by its namespace and name.
struct JobName {
  std::string name_space, name;
};
// Parses "name", in the namespace of `access`, or "namespace/name". Throws UsageError on anything else.
JobName parse_job_name(const std::string& text, const kube::Access& access);

// Returns the AdaptDLJob. Throws Error if it does not exist.
nlohmann::json get_job(kube::Client& client, const JobName& name);
// Like get_job(), but returns nullopt if the job does not exist.
std::optional<nlohmann::json> find_job(kube::Client& client, const JobName& name);

// The run or job that a name refers to: either `run` is set, or `client`, `name` and `job` are.
struct Target {
  std::optional<sched::RunEntry> run;
  std::shared_ptr<kube::Client> client;
  JobName name;
  nlohmann::json job;
};

// Finds the run or job that `name` refers to. An exact match takes precedence over a prefix of a run's name. If the
// cluster is unreachable, runs are found only by their full names. Throws UsageError if the name is ambiguous, and
// Error if it is unknown.
Target find_target(const ClusterOptions& options, const std::string& name);
// Like find_target(), but for several names; all targets share one client.
std::vector<Target> find_targets(const ClusterOptions& options, const std::vector<std::string>& names);

}  // namespace adaptdl::cli
