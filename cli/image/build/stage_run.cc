// Executes RUN.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "adaptdl/error.h"
#include "image/base/small_file.h"
#include "image/build/stage_build.h"
#include "image/layer/unpack.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/overlay_changes.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json optional_json(const std::optional<unsigned>& value) { return value ? json(*value) : json(); }

json mount_description(const Mount& mount) {
  return {{"type", static_cast<int>(mount.type)},
          {"source", mount.source},
          {"target", mount.target},
          {"readOnly", mount.read_only},
          {"id", mount.id},
          {"sharing", static_cast<int>(mount.sharing)},
          {"environment", mount.environment ? json(*mount.environment) : json()},
          {"mode", optional_json(mount.mode)},
          {"user", optional_json(mount.user)},
          {"group", optional_json(mount.group)},
          {"size", mount.size}};
}

// A directory below work/ that the destructor removes.
struct Scratch {
  explicit Scratch(const BuildCache& cache) : path(cache.work_directory()) {}
  ~Scratch() {
    try {
      remove_tree(path);
    } catch (const Error&) {
      // The next process that locks the cache exclusively cleans work/.
    }
  }
  const fs::path path;
};

}  // namespace

std::vector<CopySource> StageBuild::context_sources(const std::string& source, std::string& key) {
  const Copy copy{.sources = {source.empty() ? "." : source}, .destination = "/", .parents = true};
  std::vector<CopySource> sources = copy_sources(work_.context, copy);
  work_.digests.fill(sources, work_.stop);
  key = key_of({"context", sources_key(sources)});
  return sources;
}

// Writes a bind mount's files, except for ignored files, as a layer that is never part of an image, so that the files
// are unpacked only once and belong to root.
BuiltLayer StageBuild::context_layer(const std::string& source) {
  const Copy copy{.destination = "/", .parents = true};
  CopyInput input;
  input.copy = &copy;
  input.tree = &work_.context;
  std::string key;
  input.sources = context_sources(source, key);
  if (const auto known = work_.cache.find_step(key); known && known->layer) return *known->layer;
  const std::optional<PlannedCopy> plan = plan_copy(input, known_target_files(true));
  LayerWriter writer(work_.cache.blobs(), {.compression = Compression::kNone}, work_.stop);
  write_copy(*plan, input, writer, work_.stop);
  const Layer layer = writer.finish();
  StepRecord record;
  record.layer = BuiltLayer{{layer.media_type, layer.digest, layer.size, {}}, layer.diff_id, ""};
  work_.cache.keep_step(key, record);
  return *record.layer;
}

std::optional<StepMount> StageBuild::step_mount(const Mount& mount) {
  StepMount result{.mount = mount, .from = {}, .content = {}};
  if (mount.type == Mount::Type::kSecret) {
    for (const BuildSecret& secret : work_.options.secrets) {
      if (secret.id != mount.id) continue;
      if (!secret.variable.empty()) {
        const char* value = std::getenv(secret.variable.c_str());
        if (value == nullptr)
          throw Error(fmt::format("secret '{}': environment variable '{}' is not set", secret.id, secret.variable));
        result.content = value;
      } else {
        const auto content = read_small_file(secret.file, fmt::format("secret '{}'", secret.id));
        if (!content) throw Error(fmt::format("secret '{}': file {} does not exist", secret.id, secret.file.string()));
        result.content = *content;
      }
      return result;
    }
    if (mount.required)
      throw Error(fmt::format("secret '{}' not found; pass it with --secret id={}", mount.id, mount.id));
    return {};
  }
  if (!mount.from.empty()) {
    result.from = work_.provider.trees(from(mount.from).layers);
  } else if (mount.type == Mount::Type::kBind) {
    result.from = work_.provider.trees({context_layer(mount.source)});
  }
  return result;
}

Run::Network StageBuild::network_of(const Run& run) const {
  if (!work_.options.no_network) return run.network;
  if (run.network == Run::Network::kHost)
    throw Error("--network=host is not allowed: the build was started with --network none");
  return Run::Network::kNone;
}

SandboxStep StageBuild::sandbox(const Step& step, const Run& run, const fs::path& scratch) {
  SandboxStep sandbox;
  sandbox.root.lower = work_.provider.trees(built_.layers);
  sandbox.root.upper = scratch / "upper";
  sandbox.root.work = scratch / "work";
  sandbox.scratch = scratch / "scratch";
  fs::create_directory(sandbox.scratch);
  sandbox.caches = work_.cache.directory() / "mounts";
  sandbox.command = step.command;
  sandbox.script = step.script;
  sandbox.environment = step.environment;
  sandbox.environment.insert(sandbox.environment.end(), step.proxies.begin(), step.proxies.end());
  sandbox.user = step.user;
  sandbox.working_directory = step.working_directory;
  sandbox.network = network_of(run);
  for (const Mount& mount : run.mounts)
    if (auto each = step_mount(mount)) sandbox.mounts.push_back(std::move(*each));
  return sandbox;
}

void StageBuild::run_step(const Step& step, const Run& run, const StepInfo& info) {
  json mounts = json::array(), environment = json::array();
  for (const Mount& mount : run.mounts) {
    json each = mount_description(mount);
    std::string key;
    if (!mount.from.empty())
      key = from(mount.from).key;
    else if (mount.type == Mount::Type::kBind)
      context_sources(mount.source, key);
    each["content"] = key;
    mounts.push_back(std::move(each));
  }
  for (const Pair& pair : step.environment) environment.push_back({pair.name, pair.value});
  const std::string key = key_of({built_.key, "RUN", step.command, step.script.value_or(""), environment, step.user,
                                  step.working_directory, static_cast<int>(network_of(run)), mounts});
  const auto make = [&] {
    require_build_namespace("execute RUN");
    const Scratch scratch(work_.cache);
    const SandboxStep sandbox = this->sandbox(step, run, scratch.path);
    own_view_.reset();
    const StepEnd end = run_in_sandbox(
        sandbox, [&](std::string_view line) { work_.report.output(info, line); }, work_.stop);
    if (!end.success()) throw Error(fmt::format("{} failed: {}", info.text, end.text()));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    StepRecord record{
        .layer = {},
        .date = work_.options.source_date_epoch.value_or(std::chrono::duration_cast<std::chrono::seconds>(now).count()),
        .directories = {},
        .links = {}};
    LayerWriter writer(work_.cache.blobs(), work_.layer_options(), work_.stop);
    if (add_overlay_changes(sandbox.root.upper, writer) == 0) return record;
    const Layer layer = writer.finish();
    record.layer = BuiltLayer{{layer.media_type, layer.digest, layer.size, {}}, layer.diff_id, ""};
    // The upper directory can serve as the unpacked layer, unless the times in the layer are limited. Only the
    // attributes of the root directory may differ, and no layer describes those.
    const fs::path& upper = sandbox.root.upper;
    const std::string chain = chain_id(chain_id(built_.layers), layer.diff_id);
    if (!work_.options.source_date_epoch && !work_.cache.find_tree(chain) && ::chown(upper.c_str(), 0, 0) == 0 &&
        ::chmod(upper.c_str(), 0755) == 0) {
      std::error_code error;
      fs::rename(upper, work_.cache.tree_path(chain), error);
      if (!error) work_.cache.used_tree(chain, layer.tar_bytes);
    }
    return record;
  };
  finish(key, info, make, true);
}

}  // namespace adaptdl::image
