#include "command/submit/submit_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "adaptdl/error.h"
#include "command/base/numbers.h"
#include "image/registry/reference.h"

namespace adaptdl::cli {
namespace {

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
  const auto number = [](const std::string& text, const char* what, int min) -> std::optional<int> {
    if (text.empty()) return std::nullopt;
    return parse_number<int>(text, fmt::format("submit: {}", what), min, 1'000'000, "an integer");
  };
  options.submission.min_replicas = number(options.min_replicas, "--min-replicas", 0);
  options.submission.max_replicas = number(options.max_replicas, "--max-replicas", 1);
  if (!options.proxy_port.empty()) {
    options.image.proxy_port =
        parse_number<std::uint16_t>(options.proxy_port, "submit: --proxy-port", 0, 65535, "a port");
  }
  if (!options.given_image.empty()) image::Reference::parse(options.given_image);
}

// The options and arguments that can be used with --ray, besides those that require it.
constexpr std::string_view kRayOptions[] = {"--ray",  "--name",    "--min-replicas", "--max-replicas", "--follow",
                                            "--wait", "--timeout", "--json",         "project",        "arg"};

// Throws UsageError if any other option was given, because it would have no effect in a Ray cluster.
void refuse_other_options(const CLI::App& app) {
  const CLI::Option* const ray = app.get_option("--ray");
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = (option->get_positional() ? "" : "--") + option->get_single_name();
    const auto needs = option->get_needs();
    if (option->count() > 0 && std::ranges::find(needs, ray) == needs.end() &&
        std::ranges::find(kRayOptions, name) == std::end(kRayOptions))
      throw UsageError(fmt::format("submit: {} cannot be used with --ray", name));
  }
}

void add_image_options(CLI::App& app, SubmitOptions& options) {
  const auto several = [](CLI::Option* option) {
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  app.add_option("-d,--dockerfile", options.image.dockerfile,
                 "Dockerfile of the image (default: DIR/Dockerfile, or a built-in one for C++ or Python projects)")
      ->type_name("FILE");
  app.add_option("--image", options.given_image,
                 "Use this existing image for the first container instead of building one")
      ->type_name("IMAGE");
  several(app.add_option("--build-arg", options.image.build_arguments,
                         "Value for an ARG in the Dockerfile; may be given several times")
              ->type_name("NAME=VALUE"));
  several(app.add_option("--secret", options.image.secrets,
                         "Secret for RUN mounts of type secret, not stored in the image: "
                         "id=ID[,src=FILE|,env=VARIABLE]; may be given several times")
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
  app.add_option("--min-replicas", options.min_replicas,
                 "Minimum number of replicas (default: the job file's; with --ray, 1)")
      ->type_name("N");
  app.add_option("--max-replicas", options.max_replicas,
                 "Maximum number of replicas (default: the job file's; required with --ray)")
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

// Adds the options that determine what to print, and how long to wait.
void add_result_options(CLI::App& app, SubmitOptions& options) {
  app.add_flag("--dry-run{client}", options.dry_run,
               "Create nothing, but print what would be created; with --dry-run=server, the cluster checks it first");
  app.add_option("-o,--output", options.output, "Output format of --dry-run (default: yaml)")->type_name("yaml|json");
  app.add_flag("--follow", options.follow,
               "Show the replicas' output until the job has ended; exit with status 1 if the job failed");
  app.add_flag("--wait", options.wait, "Wait until all jobs have ended; exit with status 1 if a job failed");
  app.add_option("--timeout", options.timeout,
                 "Maximum time to wait, such as 90s or 2h; does not stop the job (default: no limit)")
      ->type_name("DURATION");
  app.add_flag("--json", options.json, "Print JSON: one object per line");
}

}  // namespace

void add_submit_options(CLI::App& app, SubmitOptions& options) {
  app.add_option("project", options.image.project,
                 "Project directory: build context of the image, and default location of the job file")
      ->required()
      ->type_name("DIR");
  app.add_option("arg", options.submission.arguments,
                 "Arguments for the program, which replace those of the first container in the job file; with --ray, "
                 "the program and its arguments")
      ->type_name("ARG");
  app.add_option("-f,--jobfile", options.job_file,
                 "File with the AdaptDLJobs to create, or - for standard input (default: DIR/adaptdljob.yaml)")
      ->type_name("FILE");
  add_image_options(app, options);
  add_job_options(app, options);
  add_ray_submit_options(app, options.ray);
  add_result_options(app, options);
}

void check_submit_options(SubmitOptions& options) {
  check_usage(options);
  read_numbers(options);
}

RaySubmitOptions ray_options(const CLI::App& app, const SubmitOptions& options) {
  refuse_other_options(app);
  RaySubmitOptions ray = options.ray;
  ray.project = options.image.project;
  ray.program = options.submission.arguments;
  ray.name = options.submission.name;
  ray.min_replicas = options.min_replicas;
  ray.max_replicas = options.max_replicas;
  ray.timeout = options.timeout;
  ray.follow = options.follow;
  ray.wait = options.wait;
  ray.json = options.json;
  return ray;
}

}  // namespace adaptdl::cli
