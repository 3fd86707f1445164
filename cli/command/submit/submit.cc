#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "command/base/cluster_options.h"
#include "command/base/command.h"
#include "command/base/stop_signals.h"
#include "command/submit/submit_image.h"
#include "command/submit/submit_options.h"
#include "command/submit/submit_output.h"
#include "command/submit/submit_ray.h"
#include "command/submit/submit_wait.h"
#include "http/http.h"
#include "image/sandbox/build_namespace.h"
#include "kube/api/file.h"
#include "kube/api/json_fields.h"
#include "kube/jobs/job.h"
#include "kube/jobs/job_file.h"
#include "kube/jobs/storage_class.h"
#include "kube/jobs/submission.h"
#include "kube/jobs/tensorboard.h"
#include "terminal/print.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void notice(const std::string& text) { print_notice("{}", text); }

std::vector<json> read_jobs(const SubmitOptions& options) {
  const kube::JobFileNeeds needs{.name = options.submission.name.empty(), .image = false};
  if (options.job_file == "-") {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    return kube::parse_job_file(text, "standard input", needs);
  }
  const fs::path file =
      options.job_file.empty() ? options.image.project / "adaptdljob.yaml" : fs::path(options.job_file);
  const auto text = kube::read_if_there(file, "the job file");
  if (!text) {
    throw UsageError(fmt::format("submit: job file '{}' not found; create it, or name another with --jobfile{}",
                                 file.string(), options.job_file.empty() ? "" : " (- for standard input)"));
  }
  return kube::parse_job_file(*text, file.string(), needs);
}

// Returns whether the job's first container names an image, so that no image has to be built.
bool has_image(const json& job) {
  const auto& containers = kube::array_field(job, {"spec", "template", "spec", "containers"});
  return !kube::text_field(containers.front(), {"image"}).empty();
}

std::vector<kube::Submission> make_submissions(const std::vector<json>& jobs, const kube::SubmissionOptions& options) {
  std::vector<kube::Submission> all;
  for (const json& job : jobs) all.push_back(kube::make_submission(job, options));
  return all;
}

// Checks that the objects that the jobs refer to exist: the TensorBoard's volume and the image pull secret.
void check_cluster(kube::Client& client, const std::vector<json>& jobs, const kube::SubmissionOptions& options) {
  std::set<std::string> places;
  for (const json& job : jobs) {
    const std::string own = kube::text_field(job, {"metadata", "namespace"});
    places.insert(own.empty() ? options.name_space : own);
  }
  const auto need = [&](const kube::Resource& resource, const std::string& place, const std::string& name,
                        const std::string& way_out) {
    try {
      client.get(kube::path(resource, place, name));
    } catch (const kube::ApiError& error) {
      // A user who may submit jobs is not necessarily allowed to read secrets.
      if (error.not_found())
        throw Error(fmt::format("{} '{}' not found in namespace '{}'; {}", resource.kind, name, place, way_out));
      if (error.code() != 403) throw;
    }
  };
  for (const std::string& place : places) {
    if (!options.tensorboard.empty()) {
      need(
          kube::kPersistentVolumeClaims, place, kube::tensorboard_object_name(options.tensorboard),
          fmt::format("create the TensorBoard with `adaptdl tensorboard create -n {} {}`", place, options.tensorboard));
    }
    if (!options.pull_secret.empty())
      need(kube::kSecrets, place, options.pull_secret,
           "create it with `kubectl create secret docker-registry`, or change ADAPTDL_SUBMIT_REPO_CREDS");
  }
}

void stay(kube::Client& client, const std::vector<json>& jobs, const SubmitOptions& options,
          const std::stop_token& stop) {
  WaitOptions wait{.max_time = {}, .notice = notice};
  if (!options.timeout.empty()) wait.max_time = env::parse_duration(options.timeout, "submit: --timeout");
  std::vector<SubmittedJob> submitted;
  for (const json& job : jobs) {
    const kube::Job parsed = kube::parse_job(job);
    submitted.push_back({{parsed.name_space, parsed.name}, parsed.uid});
  }
  try {
    if (options.follow)
      follow_job(client, submitted.front(), wait, stop);
    else
      wait_for_jobs(client, submitted, wait, stop);
  } catch (const http::Stopped&) {
    notice(submitted.size() == 1
               ? fmt::format("job '{}' continues; `adaptdl delete` deletes it", submitted[0].name.name)
               : "the jobs continue; `adaptdl delete` deletes them");
    throw;
  }
}

class Submit {
 public:
  Submit(SubmitOptions& options, const std::vector<json>& jobs, fs::path dockerfile)
      : options_(options), jobs_(jobs), dockerfile_(std::move(dockerfile)), client_(require_cluster(options.cluster)) {
    options_.submission.name_space = client_.access().name_space;
  }

  void run(const std::stop_token& stop, kube::Submitter& submitter) {
    std::optional<ImageTarget> target;
    if (!dockerfile_.empty()) {
      target = ImageTarget::of_environment();
      if (!target) target = ImageTarget::of_cluster(client_);
      options_.submission.image = target->pulled_as();
    }
    check_cluster(client_, jobs_, options_.submission);
    options_.submission.storage = kube::choose_job_storage(client_, options_.storage_class);
    const auto planned = make_submissions(jobs_, options_.submission);
    submitter.check(planned, notice);
    if (!options_.dry_run.empty()) return show_dry_run(planned, submitter);
    if (target) {
      // A build takes a while, so everything that the cluster may refuse has already been checked.
      options_.submission.image = target->build_and_push(dockerfile_, options_.image, stop);
    }
    const auto jobs = submitter.create(make_submissions(jobs_, options_.submission), stop, notice);
    for (const json& job : jobs) print_created(job, client_, options_);
    if (options_.follow || options_.wait) stay(client_, jobs, options_, stop);
  }
  kube::Client& client() { return client_; }

 private:
  void show_dry_run(const std::vector<kube::Submission>& planned, kube::Submitter& submitter) {
    std::vector<kube::Submission> made;
    for (const kube::Submission& one : planned) made.push_back(submitter.dry_run(one));
    print_objects(made, options_.output);
    if (!dockerfile_.empty())
      notice(fmt::format("nothing was built; without --dry-run, the image is '{}@DIGEST'", options_.submission.image));
  }

  SubmitOptions& options_;
  const std::vector<json>& jobs_;
  fs::path dockerfile_;
  kube::Client client_;
};

// Prints the objects without contacting a cluster.
void dry_run_here(SubmitOptions& options, const std::vector<json>& jobs, const fs::path& dockerfile) {
  const auto access = cluster_access(options.cluster);
  options.submission.name_space = access ? access->name_space : "default";
  if (!options.storage_class.empty()) options.submission.storage = kube::StorageChoice{options.storage_class};
  if (!dockerfile.empty()) {
    const auto target = ImageTarget::of_environment();
    options.submission.image = target ? target->pulled_as() : "adaptdl-submit";
    notice(fmt::format("nothing was built; without --dry-run, the image is built from '{}'", dockerfile.string()));
  }
  print_objects(make_submissions(jobs, options.submission), options.output);
}

void submit(SubmitOptions& options, int& exit_code) {
  check_submit_options(options);
  std::error_code error;
  if (!fs::is_directory(options.image.project, error))
    throw UsageError(fmt::format("submit: project directory '{}' not found", options.image.project.string()));
  const fs::path dockerfile = options.given_image.empty() ? find_dockerfile(options.image) : fs::path();
  const std::vector<json> jobs = read_jobs(options);
  if (options.given_image.empty() && dockerfile.empty() && !std::ranges::all_of(jobs, has_image))
    throw UsageError("submit: " + no_dockerfile(options.image));
  if (options.follow && jobs.size() > 1)
    throw UsageError(
        fmt::format("submit: --follow works only with one job, but the file contains {}; use --wait", jobs.size()));
  options.submission.name_space_asked_for = !options.cluster.name_space.empty();
  options.submission.image = options.given_image;
  const char* secret = std::getenv("ADAPTDL_SUBMIT_REPO_CREDS");
  if (secret != nullptr) options.submission.pull_secret = secret;
  if (options.dry_run == "client") return dry_run_here(options, jobs, dockerfile);
  // The namespaces must be entered while the process has only one thread.
  if (!dockerfile.empty() && options.dry_run.empty()) image::enter_build_namespace();
  std::atomic<kube::Submitter*> at_work = nullptr;
  StopSignals signals([&at_work] {
    if (kube::Submitter* submitter = at_work) submitter->undo(notice);
  });
  Submit work(options, jobs, dockerfile);
  kube::Submitter submitter(work.client());
  at_work = &submitter;
  try {
    work.run(signals.token(), submitter);
  } catch (const http::Stopped&) {
    exit_code = signals.exit_code();
  } catch (...) {
    at_work = nullptr;
    throw;
  }
  at_work = nullptr;
}

}  // namespace

void add_submit(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SubmitOptions>();
  add_submit_options(app, *options);
  app.footer(
      "The image is pushed to the repository in ADAPTDL_SUBMIT_REPO, and nodes pull it with the secret named by\n"
      "ADAPTDL_SUBMIT_REPO_CREDS. If these variables are not set, the image is pushed to the cluster's own registry.\n"
      "If standard output is not a terminal, as in a script, only the names of the jobs are printed,\n"
      "one per line.");
  app.callback([&app, options, &exit_code] {
    options->ray.address.empty() ? submit(*options, exit_code) : submit_ray(ray_options(app, *options), exit_code);
  });
}

}  // namespace adaptdl::cli
