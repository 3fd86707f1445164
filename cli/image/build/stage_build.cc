#include "image/build/stage_build.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/build/url_source.h"
#include "image/dockerfile/values.h"
#include "image/layer/user_names.h"
#include "image/sandbox/build_namespace.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

// Must be incremented when a change to the builder makes a step produce a different result for the same input.
constexpr int kKeyVersion = 1;

std::string without_root(const std::string& path) {
  const std::size_t first = path.find_first_not_of('/');
  return first == std::string::npos ? "" : path.substr(first, path.find_last_not_of('/') - first + 1);
}

}  // namespace

LayerOptions BuildWork::layer_options() const {
  LayerOptions layer;
  layer.compression = options.zstd ? Compression::kZstd : Compression::kGzip;
  layer.threads = options.threads;
  if (options.source_date_epoch) layer.latest_time = *options.source_date_epoch;
  return layer;
}

bool makes_layer(const Instruction& instruction) {
  return std::holds_alternative<Run>(instruction.body) || std::holds_alternative<Copy>(instruction.body) ||
         std::holds_alternative<Workdir>(instruction.body);
}

StageBuild::StageBuild(BuildWork& work, const PlannedStage& planned)
    : work_(work), planned_(planned), stage_(work.dockerfile.stages[planned.number]), built_(begin()) {}

BuiltStage StageBuild::begin() const {
  BuiltStage built;
  if (planned_.base.stage) {
    built = work_.stages.at(*planned_.base.stage);
  } else if (!planned_.base.image.empty()) {
    const BaseImage& base = work_.images.get(planned_.base.image, planned_.base.platform);
    built.state.config = base.config.config;
    built.base = base.config.whole;
    built.layers = base.layers;
    built.key = sha256("image " + base.digest);
    built.date = base.config.date;
    built.files.begin_unread([&base](const std::string& path) { return base.may_have(path); });
  } else {
    built.key = sha256("scratch");
  }
  if (work_.options.source_date_epoch) built.date = *work_.options.source_date_epoch;
  built.platform = planned_.platform;
  return built;
}

BuiltStage StageBuild::build() {
  StageWalk walk(work_.dockerfile, stage_, work_.settings, built_.state, planned_.triggers);
  built_.state = walk.state();
  while (const std::optional<Step> next = walk.next()) {
    if (work_.stop.stop_requested()) throw http::Stopped();
    const std::size_t layers = built_.layers.size();
    const std::string place = fmt::format("{}:{}: ", work_.dockerfile.file, next->instruction->lines.first);
    try {
      step(*next);
    } catch (const http::Stopped&) {
      throw;
    } catch (const Error& error) {
      const std::string_view why = error.what();
      if (why.starts_with(place)) throw;
      const std::string& name = next->instruction->name;
      const std::string prefix = why.starts_with(name + " ") ? "" : name + ": ";
      throw Error(one_line(fmt::format("{}{}{}", place, prefix, why), 4000));
    }
    built_.state = walk.state();
    built_.history.push_back(
        {built_.date, history_text(*next), built_.state.config.author, built_.layers.size() == layers});
  }
  return std::move(built_);
}

StageBuild::From StageBuild::from(const std::string& name) const {
  const Source& source = planned_.sources.at(name);
  if (source.stage) {
    const BuiltStage& stage = work_.stages.at(*source.stage);
    return {stage.key, stage.layers};
  }
  if (source.image.empty()) return {sha256("scratch"), {}};
  const BaseImage& image = work_.images.get(source.image, source.platform);
  return {sha256("image " + image.digest), image.layers};
}

const FileTree& StageBuild::view_of(const From& from) {
  std::unique_ptr<StageView>& view = work_.views[from.key];
  if (!view) {
    require_build_namespace("execute COPY --from");
    view = work_.provider.view(from.layers);
  }
  return view->files();
}

const FileTree& StageBuild::own_files() {
  if (!own_view_) {
    require_build_namespace("read the stage's files");
    own_view_ = work_.provider.view(built_.layers);
  }
  return own_view_->files();
}

std::string StageBuild::key_of(const json& parts) const {
  const json all = {{"version", kKeyVersion},
                    {"zstd", work_.options.zstd},
                    {"date", work_.options.source_date_epoch ? json(*work_.options.source_date_epoch) : json()},
                    {"step", parts}};
  return sha256(all.dump(-1, ' ', false, json::error_handler_t::replace));
}

void StageBuild::step(const Step& step) {
  if (!makes_layer(*step.instruction)) return;
  StepInfo info{.number = ++work_.step,
                .count = work_.steps,
                .stage = work_.dockerfile.stages.size() == 1 ? ""
                         : stage_.name.empty()               ? std::to_string(stage_.number)
                                                             : stage_.name,
                .text = one_line(step.instruction->text, 500)};
  if (const auto* copied = std::get_if<Copy>(&step.body)) copy(step, *copied, info);
  if (const auto* directory = std::get_if<Workdir>(&step.body)) workdir(step, *directory, info);
  if (const auto* command = std::get_if<Run>(&step.body)) run_step(step, *command, info);
}

void StageBuild::finish(const std::string& key, const StepInfo& info, const std::function<StepRecord()>& make,
                        bool runs) {
  const auto begin = std::chrono::steady_clock::now();
  work_.report.begin_step(info);
  std::optional<StepRecord> record;
  if (!work_.options.no_cache) record = work_.cache.find_step(key);
  const bool cached = record.has_value();
  if (!record) {
    record = make();
    work_.cache.keep_step(key, *record);
  }
  built_.key = key;
  built_.date = record->date;
  if (runs) built_.files.forget();
  built_.files.add(record->directories, record->links);
  if (record->layer) {
    built_.layers.push_back(*record->layer);
    own_view_.reset();
  }
  work_.cached += cached ? 1 : 0;
  work_.report.end_step(
      info, cached, std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin));
}

// Resolves --chown and USER: "user[:group]", as names or numbers; a single number is also the group.
std::optional<Owner> StageBuild::owner(const std::string& name) {
  if (name.empty()) return {};
  const std::string user = name.substr(0, name.find(':'));
  const bool has_group = name.find(':') != std::string::npos;
  std::string numbers = name;
  // root is always 0, so no file needs to be read.
  if (numbers == "root" || numbers == "root:root") numbers = "0:0";
  const bool look = names_users(numbers);
  const UserIds ids = find_user(numbers, look ? own_files().read("etc/passwd").value_or("") : "",
                                look ? own_files().read("etc/group").value_or("") : "");
  const bool is_number = !user.empty() && user.find_first_not_of("0123456789") == std::string::npos;
  return Owner{ids.user, !has_group && is_number ? ids.user : ids.group};
}

TargetFiles StageBuild::known_target_files(bool nothing) const {
  if (nothing)
    return {[](const std::string& path) { return path.empty() ? PathKind::kDirectory : PathKind::kMissing; },
            [](const std::string& path) { return path; }};
  return {[this](const std::string& path) { return built_.files.find(path); },
          [](const std::string& path) { return path; }};
}

TargetFiles StageBuild::observed_target_files() {
  const FileTree& files = own_files();
  return {[&files](const std::string& path) {
            const std::optional<TreeFile> file = files.find(path);
            if (!file) return PathKind::kMissing;
            return file->entry.type == Entry::Type::kDirectory ? PathKind::kDirectory
                   : file->entry.type == Entry::Type::kSymlink ? PathKind::kLink
                                                               : PathKind::kOther;
          },
          [&files](const std::string& path) { return files.resolve(path); }};
}

StepRecord StageBuild::write(const CopyInput& input, bool link) {
  std::optional<PlannedCopy> plan = plan_copy(input, known_target_files(link));
  if (!plan) plan = plan_copy(input, observed_target_files());
  StepRecord record{.layer = {}, .date = input.date, .directories = {}, .links = {}};
  if (!work_.options.source_date_epoch)
    for (const auto& [path, planned] : plan->entries) record.date = std::max(record.date, planned.entry.mtime);
  LayerWriter writer(work_.cache.blobs(), work_.layer_options(), work_.stop);
  WrittenCopy written = write_copy(*plan, input, writer, work_.stop);
  if (written.entries == 0) return record;
  const Layer layer = writer.finish();
  record.layer = BuiltLayer{{layer.media_type, layer.digest, layer.size, {}}, layer.diff_id, ""};
  record.directories = std::move(written.directories);
  record.links = std::move(written.links);
  return record;
}

void StageBuild::workdir(const Step& step, const Workdir& workdir, const StepInfo& info) {
  const std::string path = without_root(workdir.path);
  const std::string key = key_of({built_.key, "WORKDIR", path, step.user});
  finish(key, info, [&] {
    StepRecord record{.layer = {}, .date = built_.date, .directories = {}, .links = {}};
    auto missing = missing_directories(path, known_target_files(false));
    if (!missing) {
      const TargetFiles seen = observed_target_files();
      missing = missing_directories(seen.resolve(path), seen);
    }
    if (missing->empty()) return record;
    const Owner owner = this->owner(step.user).value_or(Owner{});
    LayerWriter writer(work_.cache.blobs(), work_.layer_options(), work_.stop);
    for (const std::string& each : *missing)
      writer.add({.path = each,
                  .type = Entry::Type::kDirectory,
                  .mode = kDirectoryMode,
                  .uid = owner.user,
                  .gid = owner.group,
                  .mtime = built_.date});
    const Layer layer = writer.finish();
    record.layer = BuiltLayer{{layer.media_type, layer.digest, layer.size, {}}, layer.diff_id, ""};
    record.directories = *missing;
    return record;
  });
}

}  // namespace adaptdl::image
