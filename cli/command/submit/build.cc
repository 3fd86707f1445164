#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "command/base/command.h"
#include "command/base/registry_flags.h"
#include "command/base/stop_signals.h"
#include "http/http.h"
#include "image/build/builder.h"
#include "image/dockerfile/values.h"
#include "image/layer/build_cache.h"
#include "image/sandbox/build_namespace.h"
#include "terminal/dump_json.h"
#include "terminal/format.h"
#include "terminal/print.h"
#include "view/build_screen.h"

namespace adaptdl::cli {
namespace {

struct BuildCommandOptions {
  std::string context, file, target, platform, compression = "gzip", network = "host", cache_limit, keep;
  std::vector<std::string> tags, arguments, labels, outputs, secrets;
  RegistryFlags registry;
  bool push = false, no_cache = false, quiet = false, json = false, all = false;
};

// Splits NAME=VALUE; the value is null if there is no '='.
std::pair<std::string, std::optional<std::string>> pair_of(const std::string& text, const char* option) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || text.empty()) throw UsageError(fmt::format("build: missing name in {} '{}'", option, text));
  if (equals == std::string::npos) return {text, {}};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::uint64_t parse_build_size(const std::string& text, const char* option) {
  try {
    return image::parse_size(text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("build: {}: {}", option, error.what()));
  }
}

image::BuildOptions build_options(const BuildCommandOptions& options) {
  image::BuildOptions build;
  build.context = options.context;
  build.dockerfile = options.file;
  build.target = options.target;
  try {
    if (!options.platform.empty()) build.platform = image::Platform::parse(options.platform);
  } catch (const Error& error) {
    throw UsageError(fmt::format("build: --platform: {}", error.what()));
  }
  for (const std::string& text : options.arguments) {
    auto [name, value] = pair_of(text, "--build-arg");
    // As in Docker, a name without a value takes the value of the environment variable with the same name, if that
    // variable is set.
    const char* variable = value ? nullptr : std::getenv(name.c_str());
    if (value || variable != nullptr) build.build_arguments[name] = value ? *value : variable;
  }
  for (const std::string& text : options.labels) {
    const auto [name, value] = pair_of(text, "--label");
    build.labels[name] = value.value_or("");
  }
  for (const std::string& text : options.secrets) build.secrets.push_back(image::BuildSecret::parse(text));
  for (const std::string& text : options.outputs) build.outputs.push_back(image::BuildOutput::parse(text));
  for (const std::string& text : options.tags) build.tags.push_back(image::Reference::parse(text));
  build.push = options.push;
  build.no_cache = options.no_cache;
  if (options.network != "none" && options.network != "host")
    throw UsageError(fmt::format("build: --network must be none or host, not '{}'", options.network));
  build.no_network = options.network == "none";
  if (options.compression != "gzip" && options.compression != "zstd")
    throw UsageError(fmt::format("build: --compression must be gzip or zstd, not '{}'", options.compression));
  build.zstd = options.compression == "zstd";
  build.source_date_epoch = image::environment_source_date();
  if (!options.cache_limit.empty()) build.cache_limit.bytes = parse_build_size(options.cache_limit, "--cache-limit");
  build.registry = registry_options(options.registry, "build");
  return build;
}

void print_result(const image::BuildResult& result, const BuildCommandOptions& options) {
  if (options.json) {
    const nlohmann::json all = {
        {"digest", result.digest},        {"config", result.config_digest}, {"size", result.size},
        {"layers", result.layers},        {"steps", result.steps},          {"cachedSteps", result.cached_steps},
        {"mediaType", result.media_type}, {"images", result.pushed}};
    print_text(dump_json(all) + '\n');
    return;
  }
  for (const std::string& image : result.pushed) print_out("{}\n", image);
  if (result.pushed.empty()) print_out("{}\n", result.digest);
}

void build(const BuildCommandOptions& options, int& exit_code) {
  const image::BuildOptions build = build_options(options);
  // The namespaces must be entered while the process has only one thread.
  image::enter_build_namespace();
  StopSignals signals([] {});
  BuildScreen screen(options.quiet);
  try {
    print_result(image::build(build, screen, signals.token()), options);
    screen.wipe();
    if (!build.push && build.outputs.empty() && !options.quiet)
      screen.notice("the image is only in the build cache; use --push or --output to export it");
  } catch (const http::Stopped&) {
    screen.wipe();
    exit_code = signals.exit_code();
  } catch (...) {
    screen.show_failure();
    throw;
  }
}

void prune_cache(const BuildCommandOptions& options, int& exit_code) {
  if (options.all && !options.keep.empty())
    throw UsageError("build prune: --all and --keep-storage cannot be used together");
  std::optional<std::uint64_t> keep;
  if (options.all) keep = 0;
  if (!options.keep.empty()) keep = parse_build_size(options.keep, "--keep-storage");
  image::enter_build_namespace();
  StopSignals signals([] {});
  try {
    image::BuildCache cache(image::build_cache_directory());
    const auto pruned = cache.prune(image::cache_limit(keep, cache.directory()), true, signals.token());
    if (options.json)
      print_text(dump_json(nlohmann::json{{"before", pruned.before}, {"after", pruned.after}}) + '\n');
    else
      print_out("removed {}; {} remain in {}\n", format_bytes(pruned.before - pruned.after), format_bytes(pruned.after),
                cache.directory().string());
  } catch (const http::Stopped&) {
    exit_code = signals.exit_code();
  }
}

}  // namespace

void add_build(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BuildCommandOptions>();
  app.add_option("dir", options->context, "Directory to build the image from")->required()->type_name("DIR");
  app.add_option("-t,--tag", options->tags, "Image name, in the form REGISTRY/NAME:TAG; may be given several times")
      ->type_name("IMAGE")
      ->allow_extra_args(false);
  app.add_option("-f,--file", options->file, "Dockerfile, or - for standard input (default: DIR/Dockerfile)")
      ->type_name("FILE");
  app.add_option("--build-arg", options->arguments,
                 "Value for an ARG in the Dockerfile; without VALUE, the value of the environment variable NAME; may "
                 "be given several times")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("--target", options->target, "Dockerfile stage to build (default: the last)")->type_name("STAGE");
  app.add_option("--platform", options->platform,
                 "Image platform, such as linux/arm64 (default: this machine's platform)")
      ->type_name("PLATFORM");
  app.add_option("--label", options->labels,
                 "Label to add to the image, besides the labels in the Dockerfile; may be given several times")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--secret", options->secrets,
                 "Secret for RUN mounts of type secret, not stored in the image: "
                 "id=ID[,src=FILE|,env=VARIABLE]; may be given several times")
      ->type_name("SECRET")
      ->allow_extra_args(false);
  app.add_option("--network", options->network,
                 "Network for RUN: none, or host for this machine's network; ADD and base images always use host "
                 "(default: host)")
      ->type_name("none|host");
  app.add_flag("--push", options->push, "Push the image under each of its names");
  app.add_option("--output", options->outputs,
                 "Write the image to oci:DIRECTORY or docker-archive:FILE; may be given several times")
      ->type_name("OUTPUT")
      ->allow_extra_args(false);
  app.add_option("--compression", options->compression, "Compression of new layers (default: gzip)")
      ->type_name("gzip|zstd");
  app.add_flag("--no-cache", options->no_cache, "Do not use the cache");
  app.add_option("--cache-limit", options->cache_limit,
                 "Reduce the cache to this size after the build; 0 for no limit (default: 20 GiB, or a tenth of the "
                 "disk if that is less)")
      ->type_name("SIZE");
  add_registry_flags(app, options->registry);
  app.add_flag("-q,--quiet", options->quiet, "Do not show progress; show only why a step failed");
  app.add_flag("--json", options->json, "Print JSON");
  app.footer(
      "Neither Docker nor root is required: RUN steps run in a user namespace. The command prints the names and\n"
      "digests of pushed images, or only the digest if nothing is pushed.");
  app.callback([options, &exit_code] { build(*options, exit_code); });

  CLI::App* verb = app.add_subcommand("prune", "Remove cached build data, least recently used first");
  verb->footer("The command waits until running builds have finished.");
  verb->add_option("--keep-storage", options->keep,
                   "Maximum size of the remaining cache (default: 20 GiB, or a tenth of the disk if that is less)")
      ->type_name("SIZE");
  verb->add_flag("--all", options->all, "Remove everything");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->callback([options, &exit_code] { prune_cache(*options, exit_code); });
}

}  // namespace adaptdl::cli
