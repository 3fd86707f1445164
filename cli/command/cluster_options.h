// The options with which a command chooses its cluster, and what a name given to it stands for.
//
// One set of options and one rule for all commands: a name is a run of this machine, or a job of the cluster, and where
// it is both, the command asks which. A job of another namespace may be called NAMESPACE/NAME, as `ls -A` prints it.
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

// -n, --namespace and --context.
void add_context_options(CLI::App& app, ClusterOptions& options);
// --local and --cluster, for a command that knows both kinds.
void add_place_options(CLI::App& app, ClusterOptions& options);

// How the chosen cluster is reached; null if there is no kubeconfig, and none was asked for by an option. Throws Error.
std::optional<kube::Access> cluster_access(const ClusterOptions& options);
// The same for a command that cannot do without. Throws Error.
kube::Access require_cluster(const ClusterOptions& options);

// A job by its namespace and name.
struct JobName {
  std::string name_space, name;
};
// "name" of the namespace that `access` stands for, or "namespace/name". Throws UsageError on anything else.
JobName parse_job_name(const std::string& text, const kube::Access& access);

// The AdaptDLJob. Throws Error if there is none, or if the cluster knows no AdaptDLJobs.
nlohmann::json get_job(kube::Client& client, const JobName& name);
// The same, but null if there is no such job.
std::optional<nlohmann::json> find_job(kube::Client& client, const JobName& name);

// What is to be said to a cluster that knows no AdaptDLJobs, in place of its 404.
std::string no_such_kind(const kube::Client& client);

// Calls `work`. A 404 without a name, of a server that knows no AdaptDLJobs, becomes an Error that names the cluster.
template <typename Work>
void with_job_kind(const kube::Client& client, const Work& work) {
  try {
    work();
  } catch (const kube::ApiError& error) {
    if (error.not_found() && !kube::is_missing_object(error)) throw Error(no_such_kind(client));
    throw;
  }
}

// What a name stands for: `run`, or `job` of `client`.
struct Target {
  std::optional<sched::RunEntry> run;
  std::shared_ptr<kube::Client> client;
  JobName name;
  nlohmann::json job;
};

// Finds it. A whole name goes before the beginning of a run's. A cluster that is out of reach stands in the way of
// nothing that is a run of this machine. Throws UsageError if it is both or neither, and what the cluster had to say.
Target find_target(const ClusterOptions& options, const std::string& name);
// The same for several, by one client.
std::vector<Target> find_targets(const ClusterOptions& options, const std::vector<std::string>& names);

}  // namespace adaptdl::cli
