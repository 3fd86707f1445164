#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>

#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/jobs/ray_jobs.h"
#include "kube/api/resource.h"
#include "kube/jobs/job.h"
#include "local/record/run_client.h"
#include "local/record/run_directory.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;

// How often to check whether a job is gone, and the time after which to report what its deletion is waiting for.
constexpr auto kLookForRemainsEvery = std::chrono::milliseconds(200);
constexpr auto kReportAfter = std::chrono::seconds(5);

struct DeleteOptions {
  ClusterOptions cluster;
  std::vector<std::string> names;
  std::string ray;
  bool keep_checkpoints = false;
  bool now = false;
  bool yes = false;
  bool no_wait = false;
};

// Throws Error if another active run saves its checkpoints in this run's directory.
void refuse_if_used(const fs::path& runs, const sched::RunEntry& run) {
  // The two paths may lead to the same directory through different symbolic links.
  const auto resolved = [](const fs::path& path) {
    std::error_code error;
    const fs::path target = fs::weakly_canonical(path, error);
    return (error ? path : target).string() + '/';
  };
  const std::string inside = resolved(run.directory);
  for (const sched::RunEntry& other : sched::list_runs(runs)) {
    if (other.alive && other.status.name != run.status.name &&
        resolved(other.status.checkpoints).starts_with(inside)) {
      throw Error(
          fmt::format("run '{}' saves its checkpoints in '{}'; delete that run first, or use --keep-checkpoints",
                      other.status.name, other.status.checkpoints));
    }
  }
}

void end(const sched::RunEntry& run, bool now) {
  try {
    sched::ask_run(run, {{"request", now ? "kill" : "stop"}});
  } catch (const Error&) {
    if (sched::is_alive(run)) throw;  // otherwise, it has already ended
  }
  sched::wait_for_end(run);
}

void remove_run(const sched::RunEntry& run, const DeleteOptions& options) {
  if (!options.keep_checkpoints) refuse_if_used(sched::runs_directory(), run);
  if (run.alive) end(run, options.now);
  const fs::path checkpoints = run.status.checkpoints;
  sched::remove_run(run, options.keep_checkpoints);
  std::error_code ignored;
  const bool kept =
      !checkpoints.empty() && fs::is_directory(checkpoints, ignored) && !fs::is_empty(checkpoints, ignored);
  print_out("deleted {}{}\n", run.status.name,
            kept ? fmt::format("; its checkpoints are in '{}'", checkpoints.string()) : "");
}

std::vector<kube::Replica> pods_of(const Target& target) {
  std::vector<kube::Replica> pods;
  target.client->list(kube::path(kube::kPods, target.name.name_space),
                      {.label_selector = kube::replica_selector(target.name.name), .field_selector = {}},
                      [&pods](nlohmann::json&& pod) { pods.push_back(kube::parse_replica(pod)); });
  return pods;
}

// Requests the deletion of a job. With --now, its pods are killed without time to save a checkpoint.
void ask(const Target& target, const DeleteOptions& options) {
  if (options.keep_checkpoints) {
    throw UsageError(fmt::format(
        "delete: --keep-checkpoints works only with local runs; the checkpoints of job '{}' are on its volume, which "
        "is deleted with the job if the job owns the volume claim",
        target.name.name));
  }
  const kube::Job job = kube::parse_job(target.job);
  try {
    target.client->remove(kube::path(kube::kAdaptDLJobs, target.name.name_space, target.name.name),
                          {.grace = {}, .uid = job.uid});
  } catch (const kube::ApiError& error) {
    if (!error.not_found()) throw;
  }
  if (!options.now) return;
  for (const kube::Replica& pod : pods_of(target)) {
    try {
      target.client->remove(kube::path(kube::kPods, pod.name_space, pod.name),
                            {.grace = std::chrono::seconds(0), .uid = pod.uid});
    } catch (const kube::ApiError& error) {
      if (!error.not_found() && !error.conflict()) throw;
    }
  }
}

// Describes what is left of the job, or returns "" if nothing is left.
std::string remains(const Target& target, const std::string& uid) {
  if (const auto job = find_job(*target.client, target.name)) {
    const kube::Job now = kube::parse_job(*job);
    if (now.uid == uid) {
      return now.finalizers.empty() ? "the API server to remove it"
                                    : fmt::format("finalizers {}", fmt::join(now.finalizers, ", "));
    }
  }
  std::vector<std::string> names;
  for (const kube::Replica& pod : pods_of(target)) {
    if (pod.owner == uid) names.push_back(pod.name);
  }
  return names.empty() ? "" : fmt::format("pods {}", fmt::join(names, ", "));
}

void wait_until_gone(const Target& target) {
  const std::string uid = kube::parse_job(target.job).uid;
  const auto begin = std::chrono::steady_clock::now();
  std::string reported;
  for (std::string left; !(left = remains(target, uid)).empty(); std::this_thread::sleep_for(kLookForRemainsEvery)) {
    if (std::chrono::steady_clock::now() - begin < kReportAfter || left == reported) continue;
    print_notice("deletion of job '{}' is waiting for {}; Ctrl-C does not cancel it", target.name.name, left);
    reported = left;
  }
}

bool agreed(const DeleteOptions& options) {
  if (options.names.size() < 2 || options.yes || !is_terminal(STDIN_FILENO) || !is_terminal(STDERR_FILENO)) return true;
  print_prompt("delete {}? [y/N] ", fmt::format("{}", fmt::join(options.names, ", ")));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Calls `work` for all targets, even if it fails for some. Stores the first failure in `failed` and prints the others.
template <typename Work>
void each(const std::vector<Target>& targets, std::exception_ptr& failed, const Work& work) {
  for (const Target& target : targets) {
    try {
      work(target);
    } catch (const Error& error) {
      if (failed) print_error(error.what());
      if (!failed) failed = std::current_exception();
    }
  }
}

void remove_target(const DeleteOptions& options) {
  // All names are looked up before anything is deleted, so that nothing is deleted if a name is wrong.
  const std::vector<Target> targets = find_targets(options.cluster, options.names);
  if (!agreed(options)) throw Error("nothing was deleted");
  std::exception_ptr failed;
  std::vector<Target> asked;
  each(targets, failed, [&](const Target& target) {
    if (target.run) return remove_run(*target.run, options);
    ask(target, options);
    asked.push_back(target);
  });
  each(asked, failed, [&](const Target& target) {
    if (!options.no_wait) wait_until_gone(target);
    print_out("{} {}\n", options.no_wait ? "deleting" : "deleted", target.name.name);
  });
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

void add_delete(CLI::App& app, int&) {
  auto options = std::make_shared<DeleteOptions>();
  app.add_option("job", options->names, "Name of a local run (a unique prefix is enough) or of a cluster job")
      ->required()
      ->type_name("JOB");
  app.add_flag("--yes", options->yes, "Do not ask for confirmation");
  app.add_flag("--no-wait", options->no_wait, "For jobs: do not wait until the job and its pods are gone");
  app.add_flag("--keep-checkpoints", options->keep_checkpoints, "For runs: delete everything except the checkpoints");
  app.add_flag("--now", options->now, "Kill the replicas immediately, without a checkpoint");
  add_context_options(app, options->cluster);
  add_place_options(app, options->cluster);
  add_ray_option(app, options->ray,
                 {"--namespace", "--context", "--local", "--cluster", "--keep-checkpoints", "--now"});
  app.footer(
      "An active run is asked to save a checkpoint and exit, as with Ctrl-C, and the command waits until the run has\n"
      "ended. Directories given with --checkpoint or --logs are kept. A job's pods are deleted with the job, as are\n"
      "the volume claims that it owns. On a terminal, the command asks for confirmation before it deletes more than\n"
      "one run or job.");
  app.callback([options] {
    if (options->ray.empty()) return remove_target(*options);
    if (!agreed(*options)) throw Error("nothing was deleted");
    delete_ray_jobs(options->ray, options->names, options->no_wait);
  });
}

}  // namespace adaptdl::cli
