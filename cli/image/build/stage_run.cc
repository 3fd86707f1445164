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

// A bind mount of the context contains what this COPY would copy.
CopyStep context_copy(const Mount& mount) {
  return {.sources = {mount.source.empty() ? "." : mount.source}, .destination = "/", .parents = true};
}

std::string context_key(const BuildWork& work, const std::vector<CopySource>& sources) {
  return work.key_of({"context", sources_key(sources)});
}

// Writes a bind mount's files, except for ignored files, as a layer that is never part of an image, so that the files
// are unpacked only once and belong to root.
BuiltLayer context_layer(const BuildWork& work, const Mount& mount) {
  const CopyStep copy = context_copy(mount);
  const CopyInput input{.copy = &copy, .tree = &work.context, .sources = work.context_sources(copy)};
  const std::string key = context_key(work, input.sources);
  if (const auto known = work.cache.find_step(key); known && known->layer) return *known->layer;
  const StageFiles none;
  LayerWriter writer(work.cache.blobs(), {.compression = Compression::kNone}, work.stop);
  write_copy(*plan_copy(input, target_files(none)), input, {}, writer, work.stop);
  const StepRecord record{.layer = built_layer(writer.finish()), .created = {}};
  work.cache.keep_step(key, record);
  return *record.layer;
}

// Returns nullopt if the secret was not passed, and is not required.
std::optional<std::string> secret_content(const std::vector<BuildSecret>& secrets, const Mount& mount) {
  for (const BuildSecret& secret : secrets) {
    if (secret.id != mount.id) continue;
    if (!secret.variable.empty()) {
      if (const char* value = std::getenv(secret.variable.c_str())) return value;
      throw Error(fmt::format("secret '{}': environment variable '{}' is not set", secret.id, secret.variable));
    }
    if (auto content = read_small_file(secret.file, fmt::format("secret '{}'", secret.id))) return content;
    throw Error(fmt::format("secret '{}': file '{}' does not exist", secret.id, secret.file.string()));
  }
  if (mount.required)
    throw Error(fmt::format("secret '{}' not found; pass it with --secret id={}", mount.id, mount.id));
  return {};
}

Run::Network network_of(const RunStep& run, const BuildOptions& options) {
  if (!options.no_network) return run.network;
  if (run.network == Run::Network::kHost)
    throw Error("--network=host is not allowed: the build was started with --network none");
  return Run::Network::kNone;
}

}  // namespace

std::optional<StepMount> StageBuild::step_mount(const Mount& mount) const {
  StepMount result{.mount = mount, .from = {}, .content = {}};
  if (mount.type == Mount::Type::kSecret) {
    auto content = secret_content(work_.options.secrets, mount);
    if (!content) return {};
    result.content = std::move(*content);
  } else if (!mount.from.empty()) {
    result.from = work_.provider.trees(origin_of(mount.from).layers);
  } else if (mount.type == Mount::Type::kBind) {
    result.from = work_.provider.trees({context_layer(work_, mount)});
  }
  return result;
}

SandboxStep StageBuild::sandbox_step(const RunStep& run, const fs::path& scratch) const {
  SandboxStep sandbox;
  sandbox.root.lower = work_.provider.trees(built_.layers);
  sandbox.root.upper = scratch / "upper";
  sandbox.root.work = scratch / "work";
  sandbox.scratch = scratch / "scratch";
  fs::create_directory(sandbox.scratch);
  sandbox.caches = work_.cache.directory() / "mounts";
  sandbox.command = run.command;
  sandbox.script = run.script;
  sandbox.environment = run.environment;
  sandbox.environment.insert(sandbox.environment.end(), run.proxies.begin(), run.proxies.end());
  sandbox.user = run.user;
  sandbox.working_directory = run.working_directory;
  sandbox.network = network_of(run, work_.options);
  for (const Mount& mount : run.mounts)
    if (auto each = step_mount(mount)) sandbox.mounts.push_back(std::move(*each));
  return sandbox;
}

void StageBuild::execute_run(const RunStep& run, const StepInfo& info) {
  json mounts = json::array(), environment = json::array();
  for (const Mount& mount : run.mounts) {
    json each = mount_description(mount);
    const bool context = mount.from.empty() && mount.type == Mount::Type::kBind;
    each["content"] = context              ? context_key(work_, work_.context_sources(context_copy(mount)))
                      : mount.from.empty() ? ""
                                           : origin_of(mount.from).key;
    mounts.push_back(std::move(each));
  }
  for (const Pair& pair : run.environment) environment.push_back({pair.name, pair.value});
  const std::string key =
      work_.key_of({built_.key, "RUN", run.command, run.script.value_or(""), environment, run.user,
                    run.working_directory, static_cast<int>(network_of(run, work_.options)), mounts});
  run_cached_step(key, info, [&] {
    require_build_namespace("execute RUN");
    const Scratch scratch(work_.cache);
    const SandboxStep sandbox = sandbox_step(run, scratch.path);
    own_view_.reset();
    const StepEnd end = run_in_sandbox(
        sandbox, [&](std::string_view line) { work_.report.output(info, line); }, work_.stop);
    if (!end.success()) throw Error(fmt::format("{} failed: {}", info.text, end.text()));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    StepRecord record{
        .layer = {},
        .date = work_.options.source_date_epoch.value_or(std::chrono::duration_cast<std::chrono::seconds>(now).count()),
        .created = {}};
    LayerWriter writer(work_.cache.blobs(), work_.layer_options(), work_.stop);
    if (add_overlay_changes(sandbox.root.upper, writer) == 0) return record;
    const Layer layer = writer.finish();
    record.layer = built_layer(layer);
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
  });
  built_.files.forget();  // the command may have changed any file
}

}  // namespace adaptdl::image
