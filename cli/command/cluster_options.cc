#include "command/cluster_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "kube/kubeconfig.h"
#include "local/run_directory.h"

namespace adaptdl::cli {
namespace {

// Maximum time for the lookup of a job that may have the same name as a local run.
constexpr auto kProbeTimeout = std::chrono::milliseconds(1500);

bool named_exactly(const std::optional<sched::RunEntry>& run, const std::string& name) {
  return run && run->status.name == name;
}

// Returns the run with that name, or the only run whose name begins with it, or nullopt. Throws UsageError if several
// names begin with it.
std::optional<sched::RunEntry> find_local(const std::string& name) {
  if (name.find('/') != std::string::npos) return std::nullopt;
  const auto runs = sched::runs_directory();
  const auto all = sched::list_runs(runs);
  const bool any =
      std::ranges::any_of(all, [&name](const sched::RunEntry& run) { return run.status.name.starts_with(name); });
  if (!any) return std::nullopt;
  return sched::find_run(runs, name);
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

// Returns the job with that name, or nullopt if there is no such job or the cluster does not answer in time.
std::optional<nlohmann::json> ask_briefly(const kube::Access& access, const JobName& name) {
  kube::Client client(access, {.connect_timeout = kProbeTimeout, .timeout = kProbeTimeout, .patience = {}});
  try {
    return find_job(client, name);
  } catch (const Error&) {
    return std::nullopt;  // the run is usable even if the cluster is not
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
  CLI::Option* local = app.add_flag("--local", options.local, "Use only local runs; do not contact a cluster");
  app.add_flag("--cluster", options.cluster, "Use only cluster jobs")->excludes(local);
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

std::string no_such_kind(const kube::Client& client) {
  return fmt::format(
      "the cluster of context '{}' does not have the resource AdaptDLJob; its administrator can install it with "
      "`kubectl apply -f adaptdljob.yaml`",
      client.access().context);
}

std::optional<nlohmann::json> find_job(kube::Client& client, const JobName& name) {
  try {
    return client.get(kube::path(kube::kAdaptDLJobs, name.name_space, name.name));
  } catch (const kube::ApiError& error) {
    if (kube::is_missing_object(error)) return std::nullopt;
    if (!error.not_found()) throw;
    throw Error(no_such_kind(client));
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
  if (options.local) {
    target.run = sched::find_run(sched::runs_directory(), name);
    return target;
  }
  target.run = find_local(name);
  const auto access = cluster_access(options);
  if (!access) {
    if (!target.run) target.run = sched::find_run(sched::runs_directory(), name);  // throws: there is no such run
    return target;
  }
  if (!target.run) return job_target(options, name, client);
  if (const auto job = ask_briefly(*access, parse_job_name(name, *access))) {
    if (named_exactly(target.run, name)) {
      throw UsageError(
          fmt::format("'{}' is both a local run and a job in context '{}'; choose with --local or --cluster", name,
                      access->context));
    }
    return job_target(options, name, client);
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
