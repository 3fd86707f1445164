#include <fmt/format.h>
#include <unistd.h>

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
#include "command/base/numbers.h"
#include "command/base/stop_signals.h"
#include "command/submit/submit_image.h"
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
#include "terminal/dump_json.h"
#include "terminal/print.h"
#include "terminal/terminal.h"
#include "terminal/yaml.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct SubmitOptions {
  ClusterOptions cluster;
  SubmitImageOptions image;
  kube::SubmissionOptions submission;
  std::string job_file, given_image, storage_class, proxy_port, min_replicas, max_replicas;
  std::string dry_run, output, timeout;
  bool follow = false, wait = false, json = false;
  RaySubmitOptions ray;
};

void notice(const std::string& text) { print_notice("{}", text); }

void check_usage(const SubmitOptions& options) {
  const auto refuse = [](const std::string& why) { throw UsageError("submit: " + why); };
  if (!options.dry_run.empty() && options.dry_run != "client" && options.dry_run != "server")
    refuse(fmt::format("--dry-run must be client or server, not '{}'", options.dry_run));
  if (!options.output.empty() && options.output != "yaml" && options.output != "json")
    refuse(fmt::format("-o must be yaml or json, not '{}'", options.output));
  if (!options.output.empty() && options.dry_run.empty())
    refuse("-o requires --dry-run; use --json to print what was created");
  if (!options.dry_run.empty() && (options.follow || options.wait || options.json))
    refuse("--dry-run creates no job and cannot be used with --follow, --wait or --json");
  if (options.follow && options.wait) refuse("--follow also waits; omit --wait");
  if (!options.timeout.empty() && !options.follow && !options.wait) refuse("--timeout requires --wait or --follow");
  if (!options.given_image.empty() && !options.image.dockerfile.empty())
    refuse("--image and --dockerfile cannot be used together");
}

// Parses the numeric options, and checks --image.
void read_numbers(SubmitOptions& options) {
  const auto number = [](const std::string& text, const char* what, int least) -> std::optional<int> {
    if (text.empty()) return std::nullopt;
    return parse_number<int>(text, fmt::format("submit: {}", what), least, 1'000'000, "a number");
  };
  options.submission.min_replicas = number(options.min_replicas, "--min-replicas", 0);
  options.submission.max_replicas = number(options.max_replicas, "--max-replicas", 1);
  if (!options.proxy_port.empty()) {
    options.image.proxy_port =
        parse_number<std::uint16_t>(options.proxy_port, "submit: --proxy-port", 0, 65535, "a port");
  }
  if (!options.given_image.empty()) image::Reference::parse(options.given_image);
}

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
    throw UsageError(fmt::format("submit: job file {} not found; create it, or use another with --jobfile{}",
                                 file.string(), options.job_file.empty() ? "" : " (- is standard input)"));
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

void print_objects(const std::vector<kube::Submission>& all, const std::string& form) {
  json items = json::array();
  for (const kube::Submission& one : all) {
    items.push_back(one.claim);
    items.push_back(one.job);
  }
  if (form == "json") {
    const json list{{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
    print_text(dump_json(list) + '\n');
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) print_text((i == 0 ? "" : "---\n") + to_yaml(items[i]));
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
      need(kube::kPersistentVolumeClaims, place, kube::tensorboard_object_name(options.tensorboard),
           fmt::format("create the TensorBoard with `adaptdl tensorboard create {0}`", options.tensorboard));
    }
    if (!options.pull_secret.empty())
      need(kube::kSecrets, place, options.pull_secret,
           "create it with `kubectl create secret docker-registry`, or change ADAPTDL_SUBMIT_REPO_CREDS");
  }
}

std::string called(const json& job, const kube::Client& client) {
  const std::string place = kube::text_field(job, {"metadata", "namespace"});
  const std::string name = kube::text_field(job, {"metadata", "name"});
  return place == client.access().name_space ? name : place + '/' + name;
}

void print_created(const json& job, const kube::Client& client, const SubmitOptions& options) {
  const std::string name = called(job, client);
  if (options.json) {
    json volume;
    for (const json& one : kube::array_field(job, {"spec", "template", "spec", "volumes"})) {
      if (kube::text_field(one, {"name"}) == kube::kJobVolume)
        volume = kube::field(one, {"persistentVolumeClaim", "claimName"});
    }
    const json said{{"name", job["metadata"]["name"]},
                    {"namespace", job["metadata"]["namespace"]},
                    {"uid", job["metadata"]["uid"]},
                    {"context", client.access().context},
                    {"claim", volume},
                    {"image", kube::array_field(job, {"spec", "template", "spec", "containers"})[0]["image"]}};
    print_text(dump_json(said, -1) + '\n');
  } else if (!is_terminal(STDOUT_FILENO)) {
    print_out("{}\n", name);
  } else {
    std::string where;
    if (!options.cluster.name_space.empty()) where += " -n " + options.cluster.name_space;
    if (!options.cluster.context.empty()) where += " --context " + options.cluster.context;
    print_out("Submitted job {} to namespace {} in context {}\n", name,
              kube::text_field(job, {"metadata", "namespace"}), client.access().context);
    if (!options.follow && !options.wait) {
      print_out(
          "  adaptdl ls{0}                 its status, and the reason\n"
          "  adaptdl logs {1} --follow{0}   its replicas' output\n"
          "  adaptdl cp {1}:/adaptdl/share/FILE .{0}\n"
          "  adaptdl delete {1}{0}\n",
          where, name);
    }
  }
  std::fflush(stdout);
}

void stay(kube::Client& client, const std::vector<json>& jobs, const SubmitOptions& options,
          const std::stop_token& stop) {
  WaitOptions wait{.longest = {}, .notice = notice};
  if (!options.timeout.empty()) wait.longest = env::parse_duration(options.timeout, "submit: --timeout");
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
    notice(fmt::format("job {} continues; `adaptdl delete` ends it", submitted.front().name.name));
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
    with_job_kind(client_, [&] { submitter.check(planned, notice); });
    if (!options_.dry_run.empty()) return show_dry_run(planned, submitter);
    if (target) {
      // A build takes a while, so everything that the cluster may refuse has been checked before it.
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
    if (!dockerfile_.empty()) notice("nothing was built: the image will be " + options_.submission.image + "@DIGEST");
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
    notice("nothing was built: the image will be built from " + dockerfile.string());
  }
  print_objects(make_submissions(jobs, options.submission), options.output);
}

void submit(SubmitOptions& options, int& exit_code) {
  check_usage(options);
  read_numbers(options);
  std::error_code error;
  if (!fs::is_directory(options.image.project, error))
    throw UsageError(fmt::format("submit: project directory {} not found", options.image.project.string()));
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

// The options and arguments that can be used with --ray.
constexpr std::string_view kRayOptions[] = {"--ray",
                                            "--cpus",
                                            "--gpus",
                                            "--max-cluster-size",
                                            "--checkpoint-path",
                                            "--no-checkpoint",
                                            "--checkpoint-timeout",
                                            "--name",
                                            "--min-replicas",
                                            "--max-replicas",
                                            "--follow",
                                            "--wait",
                                            "--timeout",
                                            "--json",
                                            "project",
                                            "arg"};

// Throws UsageError if another option was given, because it would have no effect in a Ray cluster.
void refuse_other_options(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = (option->get_positional() ? "" : "--") + option->get_single_name();
    if (option->count() > 0 && std::ranges::find(kRayOptions, name) == std::end(kRayOptions))
      throw UsageError(fmt::format("submit: {} cannot be used with --ray", name));
  }
}

void submit_to_ray(const CLI::App& app, SubmitOptions& options, int& exit_code) {
  refuse_other_options(app);
  RaySubmitOptions& ray = options.ray;
  ray.project = options.image.project;
  ray.program = options.submission.arguments;
  ray.name = options.submission.name;
  ray.min_replicas = options.min_replicas;
  ray.max_replicas = options.max_replicas;
  ray.timeout = options.timeout;
  ray.follow = options.follow;
  ray.wait = options.wait;
  ray.json = options.json;
  submit_ray(ray, exit_code);
}

void add_image_options(CLI::App& app, SubmitOptions& options) {
  const auto several = [](CLI::Option* option) {
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  app.add_option("-d,--dockerfile", options.image.dockerfile,
                 "Dockerfile of the image (default: PROJECT/Dockerfile, or a built-in one for C++ or Python projects)")
      ->type_name("FILE");
  app.add_option("--image", options.given_image,
                 "Use this existing image for the first container instead of building one")
      ->type_name("IMAGE");
  several(app.add_option("--build-arg", options.image.build_arguments,
                         "Value for an ARG in the Dockerfile; may be given several times")
              ->type_name("NAME=VALUE"));
  several(app.add_option("--secret", options.image.secrets,
                         "Secret for RUN mounts of type secret, not stored in the image: "
                         "id=ID[,src=FILE|,env=VARIABLE]")
              ->type_name("SECRET"));
  app.add_option("--target", options.image.target, "Dockerfile stage to build (default: the last)")->type_name("STAGE");
  app.add_flag("--no-cache", options.image.no_cache, "Do not use the cache");
  add_registry_flags(app, options.image.registry);
  app.add_option("--proxy-port", options.proxy_port,
                 "Local port through which the image is pushed to the cluster's own registry (default: a free port)")
      ->type_name("PORT");
}

void add_job_options(CLI::App& app, SubmitOptions& options) {
  app.add_option("-n,--name", options.submission.name,
                 "Prefix of the job's name, which is followed by '-' and five random characters")
      ->type_name("NAME");
  app.add_option("--min-replicas", options.min_replicas, "Minimum number of replicas (default: the job file's)")
      ->type_name("N");
  app.add_option("--max-replicas", options.max_replicas, "Maximum number of replicas (default: the job file's)")
      ->type_name("N");
  app.add_option("--tensorboard", options.submission.tensorboard, "TensorBoard in the cluster for the job to write to")
      ->type_name("NAME");
  app.add_option("--checkpoint-storage-size", options.submission.storage_size,
                 "Size of the job's volume (default: 1Gi)")
      ->type_name("QUANTITY");
  app.add_option("--checkpoint-storage-class", options.storage_class,
                 "Storage class of the job's volume; must support volumes shared by several nodes (default: one that "
                 "is known to support them)")
      ->type_name("NAME");
  app.add_option("--namespace", options.cluster.name_space,
                 "Namespace in the cluster (default: the job file's or, if it has none, the context's)")
      ->type_name("NAMESPACE");
  app.add_option("--context", options.cluster.context, "Context from the kubeconfig (default: the current one)")
      ->type_name("NAME");
}

}  // namespace

void add_submit(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SubmitOptions>();
  app.add_option("project", options->image.project, "Directory to build the image from")->required()->type_name("DIR");
  app.add_option("arg", options->submission.arguments,
                 "Arguments for the program; replace the first container's arguments in the job file")
      ->type_name("ARG");
  app.add_option("-f,--jobfile", options->job_file,
                 "File with the AdaptDLJobs to create, or - for standard input (default: PROJECT/adaptdljob.yaml)")
      ->type_name("FILE");
  add_image_options(app, *options);
  add_job_options(app, *options);
  add_ray_submit_options(app, options->ray);
  app.add_flag("--dry-run{client}", options->dry_run,
               "Create nothing, but print what would be created; with --dry-run=server, the cluster checks it first");
  app.add_option("-o,--output", options->output, "Output format of --dry-run (default: yaml)")->type_name("yaml|json");
  app.add_flag("--follow", options->follow,
               "Show the replicas' output until the job has ended; exit with status 1 if the job failed");
  app.add_flag("--wait", options->wait, "Wait until all jobs have ended; exit with status 1 if a job failed");
  app.add_option("--timeout", options->timeout,
                 "Maximum time to wait, such as 90s or 2h; does not stop the job (default: no limit)")
      ->type_name("DURATION");
  app.add_flag("--json", options->json, "Print JSON: one object per line");
  app.footer(
      "The image is pushed to the repository in ADAPTDL_SUBMIT_REPO, and nodes pull it with the secret named by\n"
      "ADAPTDL_SUBMIT_REPO_CREDS. If these variables are not set, the image is pushed to the cluster's own registry.\n"
      "If standard output is not a terminal, as in a script, only the job's name is printed.");
  app.callback([&app, options, &exit_code] {
    options->ray.address.empty() ? submit(*options, exit_code) : submit_to_ray(app, *options, exit_code);
  });
}

}  // namespace adaptdl::cli
