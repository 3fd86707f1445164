#include <fmt/format.h>

#include <memory>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "kube/api/resource.h"
#include "kube/jobs/job.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

struct SuspendOptions {
  ClusterOptions cluster;
  std::vector<std::string> names;
};

void check_can_change(const kube::Job& job) {
  if (job.deleted) throw Error(fmt::format("job '{}' is being deleted", job.name));
  if (job.ended()) throw Error(fmt::format("job '{}' has ended; submit a new job instead", job.name));
}

void set_suspend(kube::Client& client, const kube::Job& job, bool suspend) {
  // Because of the uid, the API server does not change a newer job with the same name.
  const auto changed = client.patch(kube::path(kube::kAdaptDLJobs, job.name_space, job.name), kube::Patch::kMerge,
                                    {{"metadata", {{"uid", job.uid}}}, {"spec", {{"suspend", suspend}}}});
  // The API server drops fields that the resource definition lacks.
  if (kube::parse_job(changed).suspend != suspend)
    throw Error(
        fmt::format("cannot suspend job '{}': in the cluster of context '{}', AdaptDLJobs lack spec.suspend; "
                    "apply the output of `adaptdl operator manifests`",
                    job.name, client.access().context));
  print_out("{} {}\n", suspend ? "suspending" : "resuming", job.name);
}

void set_suspend(const SuspendOptions& options, bool suspend) {
  kube::Client client(require_cluster(options.cluster));
  std::vector<kube::Job> jobs;
  // All names are checked before any job is changed.
  for (const std::string& name : options.names) {
    jobs.push_back(kube::parse_job(get_job(client, parse_job_name(name, client.access()))));
    check_can_change(jobs.back());
  }
  for (const kube::Job& job : jobs) set_suspend(client, job, suspend);
}

std::shared_ptr<SuspendOptions> add_suspend_options(CLI::App& app) {
  auto options = std::make_shared<SuspendOptions>();
  app.add_option("job", options->names, "Name of a cluster job")->required()->type_name("JOB");
  add_context_options(app, options->cluster);
  return options;
}

}  // namespace

void add_suspend(CLI::App& app, int&) {
  const auto options = add_suspend_options(app);
  app.footer(
      "The jobs' replicas save a checkpoint and exit, and the jobs receive no nodes until they are resumed.\n"
      "`adaptdl ls` shows a job as stopping until all its replicas have ended, and then as suspended.");
  app.callback([options] { set_suspend(*options, true); });
}

void add_resume(CLI::App& app, int&) {
  const auto options = add_suspend_options(app);
  app.footer("The jobs wait for nodes and continue from their checkpoints.");
  app.callback([options] { set_suspend(*options, false); });
}

}  // namespace adaptdl::cli
