#include "image/build/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/small_file.h"
#include "image/build/image_output.h"
#include "image/build/stage_build.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSourceDate = "SOURCE_DATE_EPOCH";

class SerialReport final : public BuildReport {
 public:
  explicit SerialReport(BuildReport& report) : report_(report) {}
  void begin_step(const StepInfo& step) override {
    const std::scoped_lock lock(mutex_);
    report_.begin_step(step);
  }
  void end_step(const StepInfo& step, bool cached, std::chrono::milliseconds took) override {
    const std::scoped_lock lock(mutex_);
    report_.end_step(step, cached, took);
  }
  void output(const StepInfo& step, std::string_view line) override {
    const std::scoped_lock lock(mutex_);
    report_.output(step, line);
  }
  void transfer(const TransferInfo& transfer) override {
    const std::scoped_lock lock(mutex_);
    report_.transfer(transfer);
  }
  void notice(std::string_view text) override {
    const std::scoped_lock lock(mutex_);
    report_.notice(text);
  }

 private:
  BuildReport& report_;
  std::mutex mutex_;
};

// The file may also be a pipe, such as a shell's <(command).
std::optional<std::string> dockerfile_text(const fs::path& context, const fs::path& file) {
  const auto all = [](std::istream& in) { return std::string(std::istreambuf_iterator<char>(in), {}); };
  if (file == "-") return all(std::cin);
  std::error_code none;
  if (!fs::is_fifo(file, none)) return read_build_file(context, file, "Dockerfile");
  std::ifstream pipe(file);
  return all(pipe);
}

Dockerfile read_dockerfile(const BuildOptions& options, const fs::path& file) {
  const auto text = dockerfile_text(options.context, file);
  if (!text)
    throw Error(one_line(fmt::format("Dockerfile '{}' not found{}", file.string(),
                                     options.dockerfile.empty() ? "; use -f to name another one" : "")));
  return parse_dockerfile(*text, file.lexically_normal().string());
}

BuildSettings settings_of(const BuildOptions& options) {
  BuildSettings settings;
  settings.build_arguments = options.build_arguments;
  settings.target_stage = options.target;
  if (options.platform) settings.target = *options.platform;
  if (options.source_date_epoch)
    settings.build_arguments.emplace(kSourceDate, std::to_string(*options.source_date_epoch));
  return settings;
}

// Reads the base images' triggers until the plan contains all of them.
Plan plan_of(const Dockerfile& dockerfile, const BuildSettings& settings, BaseImages& images) {
  ImageTriggers triggers;
  for (;;) {
    const Plan plan = make_plan(dockerfile, settings, triggers);
    bool more = false;
    for (const NeededImage& needed : plan.images) {
      try {
        const BaseImage& image = images.get(needed.image, needed.platform);
        if (needed.base && triggers.emplace(needed.image, image.config.triggers).second)
          more = more || !image.config.triggers.empty();
      } catch (const http::Stopped&) {
        throw;
      } catch (const Error& error) {
        throw Error(one_line(fmt::format("{}:{}: {}", dockerfile.file, needed.lines.first, error.what())));
      }
    }
    if (!more) return plan;
  }
}

std::size_t shown_steps(const Dockerfile& dockerfile, const Plan& plan) {
  std::size_t count = 0;
  for (const PlannedStage& stage : plan.stages) {
    const std::vector<Instruction>& own = dockerfile.stages[stage.number].instructions;
    count += static_cast<std::size_t>(std::count_if(stage.triggers.begin(), stage.triggers.end(), makes_layer) +
                                      std::count_if(own.begin(), own.end(), makes_layer));
  }
  return count;
}

BuiltImage image_of(BuiltStage& stage, const BuildOptions& options) {
  for (const auto& [name, value] : options.labels) stage.state.config.labels[name] = value;
  std::vector<std::string> diff_ids;
  for (const BuiltLayer& layer : stage.layers) diff_ids.push_back(layer.diff_id);
  BuiltImage image;
  image.config = config_json(stage.base, stage.state.config, stage.platform, stage.date, stage.history, diff_ids);
  image.config_digest = sha256(image.config);
  image.manifest = manifest_json(image.config, stage.layers);
  image.digest = sha256(image.manifest);
  image.layers = stage.layers;
  return image;
}

// Returns the result of the build, before the image is pushed.
BuildResult result_of(const BuiltImage& image, const BuildWork& work) {
  BuildResult result;
  result.digest = image.digest;
  result.media_type = media::kManifest;
  result.manifest = image.manifest;
  result.config = image.config;
  result.config_digest = image.config_digest;
  result.layers = image.layers.size();
  result.size = image.config.size();
  for (const BuiltLayer& layer : image.layers) result.size += layer.descriptor.size;
  result.steps = work.steps;
  result.cached_steps = work.cached;
  return result;
}

void check_options(const BuildOptions& options) {
  std::error_code error;
  if (!fs::is_directory(options.context, error))
    throw Error(one_line(fmt::format("'{}' is not a directory", options.context.string())));
  if (options.push && options.tags.empty()) throw UsageError("--push requires an image name (-t NAME)");
  for (const Reference& tag : options.tags)
    if (!tag.digest.empty())
      throw UsageError(
          fmt::format("invalid image name '{}': use a tag; the digest is known only after the build", tag.full()));
}

}  // namespace

BuildSecret BuildSecret::parse(std::string_view text) {
  BuildSecret secret;
  std::string type;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (value.empty())
      throw UsageError(fmt::format("invalid secret '{}': expected id=ID[,src=FILE|,env=VARIABLE]", text));
    if (name == "id")
      secret.id = value;
    else if (name == "src" || name == "source")
      secret.file = value;
    else if (name == "env")
      secret.variable = value;
    else if (name == "type" && (value == "file" || value == "env"))
      type = value;
    else
      throw UsageError(fmt::format("unknown secret option '{}': expected id=ID[,src=FILE|,env=VARIABLE]", part));
  }
  if (secret.id.empty()) throw UsageError(fmt::format("invalid secret '{}': id= is missing", text));
  if (!secret.file.empty() && !secret.variable.empty())
    throw UsageError(fmt::format("secret '{}': src and env cannot be used together", secret.id));
  if (secret.file.empty() && secret.variable.empty()) {
    const bool variable = type == "env" || (type.empty() && std::getenv(secret.id.c_str()) != nullptr);
    (variable ? secret.variable : type) = secret.id;
    if (!variable) secret.file = secret.id;
  }
  return secret;
}

BuildOutput BuildOutput::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon == std::string_view::npos || colon + 1 == text.size() || (kind != "oci" && kind != "docker-archive"))
    throw UsageError(fmt::format("invalid output '{}': expected oci:DIRECTORY or docker-archive:FILE", text));
  return {kind == "oci" ? Kind::kOciDirectory : Kind::kDockerArchive, fs::path(text.substr(colon + 1))};
}

std::optional<std::int64_t> environment_source_date() {
  const char* text = std::getenv(kSourceDate);
  if (text == nullptr || *text == '\0') return {};
  const std::string_view all = text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc() || end != all.data() + all.size() || value < 0)
    throw UsageError(fmt::format("invalid {} '{}': expected seconds since 1970", kSourceDate, one_line(all, 100)));
  return value;
}

BuildResult build(const BuildOptions& options, BuildReport& caller_report, const std::stop_token& stop) {
  check_options(options);
  SerialReport report(caller_report);
  const fs::path file = options.dockerfile.empty() ? options.context / "Dockerfile" : options.dockerfile;
  const Dockerfile dockerfile = read_dockerfile(options, file);
  const BuildSettings settings = settings_of(options);
  BuildSettings asked = settings;
  asked.build_arguments.erase(kSourceDate);
  for (const std::string& name : unused_build_arguments(dockerfile, asked))
    report.notice(fmt::format("--build-arg '{1}' matches no ARG in '{0}'", dockerfile.file, name));

  BuildCache cache(options.cache.empty() ? build_cache_directory() : options.cache);
  const std::uint64_t limit = cache_limit(options.cache_limit.bytes, cache.directory());
  const unsigned threads = options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  Registry registry(options.registry);
  BaseImages images(cache, registry, stop);
  LayerProvider provider(cache, registry, report, threads, stop);
  const Plan plan = plan_of(dockerfile, settings, images);
  const FileTree context(options.context, FileTree::Kind::kContext, IgnoreFile::of_build(options.context, file));
  FileDigests digests(
      context, cache.directory() / "files" / std::string(hex_of(sha256(fs::canonical(options.context).string()))),
      threads);

  BuildResult result;
  {
    BuildWork work{.options = options,
                   .report = report,
                   .stop = stop,
                   .dockerfile = dockerfile,
                   .settings = settings,
                   .cache = cache,
                   .images = images,
                   .provider = provider,
                   .context = context,
                   .digests = digests,
                   .threads = threads,
                   .stages = {},
                   .views = {},
                   .steps = shown_steps(dockerfile, plan)};
    for (const PlannedStage& stage : plan.stages) work.stages.emplace(stage.number, StageBuild(work, stage).build());
    digests.save();
    work.views.clear();
    const BuiltImage image = image_of(work.stages.at(plan.stages.back().number), options);
    if (!options.outputs.empty()) provider.fetch(image.layers);
    for (const BuildOutput& output : options.outputs)
      output.kind == BuildOutput::Kind::kOciDirectory ? write_oci_directory(image, options.tags, cache, output.path)
                                                      : write_docker_archive(image, options.tags, cache, output.path);
    result = result_of(image, work);
    if (options.push) result.pushed = push_image(image, options.tags, cache, registry, provider, report, threads, stop);
  }
  if (limit != 0 && result.cached_steps < result.steps) cache.prune(limit, false, stop);
  return result;
}

}  // namespace adaptdl::image
