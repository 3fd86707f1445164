#include "command/base/cluster_options.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "kube/api/kubeconfig.h"
#include "local/record/run_directory.h"

namespace adaptdl::cli {
namespace {

// Maximum time for the lookup of a job that may have the same name as a local run.
constexpr auto kProbeTimeout = std::chrono::milliseconds(1500);

// How a name matches the names of the local runs.
struct LocalMatches {
  bool exact = false;   // a run has this name
  bool prefix = false;  // the names of other runs begin with this name
};

LocalMatches match_runs(const std::string& name) {
  LocalMatches matches;
  if (name.find('/') != std::string::npos) return matches;
  for (const sched::RunEntry& run : sched::list_runs(sched::runs_directory())) {
    if (run.status.name == name) matches.exact = true;
    else if (run.status.name.starts_with(name)) matches.prefix = true;
  }
  return matches;
}

using Client = std::shared_ptr<kube::Client>;

Target job_target(const ClusterOptions& options, const std::string& name, Client& client) {
  if (!client) client = std::make_shared<kube::Client>(require_cluster(options));
  Target target;
  target.client = client;
  target.name = parse_job_name(name, client->access());
  target.job = get_job(*client, target.name);
  return target;
}

enum class Answer { kFound, kNotFound, kNone };

// Returns whether the job exists, or kNone if the request fails or is not answered in time.
Answer ask_briefly(const kube::Access& access, const JobName& name) {
  kube::Client client(access, {.connect_timeout = kProbeTimeout, .timeout = kProbeTimeout, .patience = {}});
  try {
    return find_job(client, name) ? Answer::kFound : Answer::kNotFound;
  } catch (const Error&) {
    return Answer::kNone;
  }
}

}  // namespace

void add_context_options(CLI::App& app, ClusterOptions& options) {
  app.add_option("-n,--namespace", options.name_space, "Namespace in the cluster (default: the context's)")
      ->type_name("NAMESPACE");
  app.add_option("--context", options.context, "Context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
}

void add_place_options(CLI::App& app, ClusterOptions& options) {
  CLI::Option* local = app.add_flag("--local", options.local, "Ignore cluster jobs; do not contact a cluster");
  app.add_flag("--cluster", options.cluster, "Ignore local runs")->excludes(local);
}

std::optional<kube::Access> cluster_access(const ClusterOptions& options) {
  if (options.local) return std::nullopt;
  return kube::find_access({.context = options.context, .name_space = options.name_space});
}

kube::Access require_cluster(const ClusterOptions& options) {
  auto access = cluster_access(options);
  if (!access) {
    throw Error("no cluster is configured: ~/.kube/config not found; set KUBECONFIG to the cluster's kubeconfig file");
  }
  return std::move(*access);
}

JobName parse_job_name(const std::string& text, const kube::Access& access) {
  const std::size_t slash = text.find('/');
  JobName name = slash == std::string::npos ? JobName{access.name_space, text}
                                            : JobName{text.substr(0, slash), text.substr(slash + 1)};
  if (name.name_space.empty() || name.name.empty() || name.name.find('/') != std::string::npos)
    throw UsageError(fmt::format("invalid job name '{}': expected NAME or NAMESPACE/NAME", text));
  return name;
}

std::optional<nlohmann::json> find_job(kube::Client& client, const JobName& name) {
  try {
    return client.get(kube::path(kube::kAdaptDLJobs, name.name_space, name.name));
  } catch (const kube::ApiError& error) {
    if (!error.missing_object()) throw;
    return std::nullopt;
  }
}

nlohmann::json get_job(kube::Client& client, const JobName& name) {
  auto job = find_job(client, name);
  if (!job) {
    throw Error(fmt::format("job '{}' not found in namespace '{}' (context '{}'); `adaptdl ls -A` lists all jobs",
                            name.name, name.name_space, client.access().context));
  }
  return std::move(*job);
}

static Target find(const ClusterOptions& options, const std::string& name, Client& client) {
  if (options.cluster) return job_target(options, name, client);
  Target target;
  const auto access = cluster_access(options);
  if (!access) {
    target.run = sched::find_run(sched::runs_directory(), name);
    return target;
  }
  const LocalMatches matches = match_runs(name);
  if (!matches.exact && !matches.prefix) return job_target(options, name, client);
  const Answer answer = ask_briefly(*access, parse_job_name(name, *access));
  if (answer == Answer::kFound && matches.exact) {
    throw UsageError(fmt::format("'{}' is both a local run and a job in context '{}'; choose with --local or --cluster",
                                 name, access->context));
  }
  if (answer == Answer::kFound) return job_target(options, name, client);
  target.run = sched::find_run(sched::runs_directory(), name);
  // A prefix of a run's name may be the full name of a job.
  if (answer == Answer::kNone && target.run->status.name != name) {
    throw UsageError(fmt::format(
        "cannot check whether '{}' is a job: the request to context '{}' failed; use --local for the run '{}'", name,
        access->context, target.run->status.name));
  }
  return target;
}

Target find_target(const ClusterOptions& options, const std::string& name) {
  Client client;
  return find(options, name, client);
}

std::vector<Target> find_targets(const ClusterOptions& options, const std::vector<std::string>& names) {
  Client client;
  std::vector<Target> targets;
  for (const std::string& name : names) targets.push_back(find(options, name, client));
  return targets;
}

}  // namespace adaptdl::cli
