
#include <future>
#include <memory>
#include <set>

#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/jobs/listing.h"
#include "command/jobs/ray_jobs.h"
#include "kube/api/resource.h"
#include "kube/jobs/job_index.h"
#include "local/record/run_client.h"
#include "terminal/print.h"
#include "view/job_text.h"

namespace adaptdl::cli {
namespace {

struct DescribeOptions {
  ClusterOptions cluster;
  std::string name, ray;
};

std::string describe_target(const Target& target) {
  kube::Client& client = *target.client;
  kube::JobIndex index;
  index.put_job(target.job);
  std::vector<nlohmann::json> all_events;
  auto listed = std::async(std::launch::async,
                           [&] { all_events = client.list(kube::path(kube::kEvents, target.name.name_space)); });
  std::set<std::string> pods;
  client.list(kube::path(kube::kPods, target.name.name_space),
              {.label_selector = kube::replica_selector(target.name.name), .field_selector = {}},
              [&](nlohmann::json&& pod) {
                index.put_pod(pod);
                pods.insert(kube::parse_replica(pod).name);
              });
  listed.get();
  const kube::Job job = kube::parse_job(target.job);
  std::vector<kube::Event> events;
  for (const nlohmann::json& object : all_events) {
    kube::Event event = kube::parse_event(object);
    // The pods of earlier groups are gone, but their events are part of the job's history.
    const bool of_pod =
        event.kind == "Pod" && (pods.contains(event.name) || event.name.starts_with(job.name + '-' + job.uid + '-'));
    const bool of_job =
        event.kind == "AdaptDLJob" && event.name == job.name && (event.uid.empty() || event.uid == job.uid);
    if (!of_pod && !of_job) continue;
    index.put_event(object);
    events.push_back(std::move(event));
  }
  const auto now = std::chrono::system_clock::now();
  return job_text(target.job, index.views(now).at(0), std::move(events), client.access().context, now);
}

void describe_one(const DescribeOptions& options) {
  const Target target = find_target(options.cluster, options.name);
  print_text(target.run ? run_text(sched::status_now(*target.run), std::chrono::system_clock::now())
                        : describe_target(target));
}

}  // namespace

void add_describe(CLI::App& app, int&) {
  auto options = std::make_shared<DescribeOptions>();
  app.add_option("job", options->name, "Name of a local run (a unique prefix is enough) or of a cluster job")
      ->required()
      ->type_name("JOB");
  add_context_options(app, options->cluster);
  add_place_options(app, options->cluster);
  add_ray_option(app, options->ray, {"--namespace", "--context", "--local", "--cluster"});
  app.footer(
      "For a job, the output shows its usage, image and command, the nodes and states of the replicas, the mounts\n"
      "and their sources, the job's hints to the scheduler, the goodput predicted from them, and as much of the job's\n"
      "history as the cluster keeps.");
  app.callback([options] {
    options->ray.empty() ? describe_one(*options)
                         : run_on_ray_head(options->ray, options->name, {"describe", "--local", options->name});
  });
}

}  // namespace adaptdl::cli
