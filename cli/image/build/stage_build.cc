#include "image/build/stage_build.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/sandbox/build_namespace.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

// Must be incremented when a change to the builder makes a step produce a different result for the same input.
constexpr int kKeyVersion = 1;

}  // namespace

LayerOptions BuildWork::layer_options() const {
  LayerOptions layer;
  layer.compression = options.zstd ? Compression::kZstd : Compression::kGzip;
  layer.threads = options.threads;
  if (options.source_date_epoch) layer.latest_time = *options.source_date_epoch;
  return layer;
}

std::string BuildWork::key_of(const json& parts) const {
  const json all = {{"version", kKeyVersion},
                    {"zstd", options.zstd},
                    {"date", options.source_date_epoch ? json(*options.source_date_epoch) : json()},
                    {"step", parts}};
  return sha256(all.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::vector<CopySource> BuildWork::context_sources(const CopyStep& copy) const {
  std::vector<CopySource> sources = copy_sources(context, copy);
  digests.fill(sources, stop);
  return sources;
}

bool makes_layer(const Instruction& instruction) {
  return std::holds_alternative<Run>(instruction.body) || std::holds_alternative<Copy>(instruction.body) ||
         std::holds_alternative<Workdir>(instruction.body);
}

BuiltLayer built_layer(const Layer& layer) {
  return {{layer.media_type, layer.digest, layer.size, {}}, layer.diff_id, ""};
}

StageBuild::StageBuild(BuildWork& work, const PlannedStage& planned)
    : work_(work), planned_(planned), stage_(work.dockerfile.stages[planned.number]), built_(base_state()) {}

BuiltStage StageBuild::base_state() const {
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
      execute(*next);
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
    built_.history.push_back({built_.date, next->history, built_.state.config.author, built_.layers.size() == layers});
  }
  return std::move(built_);
}

StageBuild::Origin StageBuild::origin_of(const std::string& from) const {
  const Source& source = planned_.sources.at(from);
  if (source.stage) {
    const BuiltStage& stage = work_.stages.at(*source.stage);
    return {stage.key, stage.layers};
  }
  if (source.image.empty()) return {sha256("scratch"), {}};
  const BaseImage& image = work_.images.get(source.image, source.platform);
  return {sha256("image " + image.digest), image.layers};
}

const FileTree& StageBuild::files_of(const Origin& origin) {
  std::unique_ptr<StageView>& view = work_.views[origin.key];
  if (!view) {
    require_build_namespace("execute COPY --from");
    view = work_.provider.view(origin.layers);
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

void StageBuild::execute(const Step& step) {
  if (!makes_layer(*step.instruction)) return;
  const StepInfo info{.number = ++work_.step,
                      .count = work_.steps,
                      .stage = work_.dockerfile.stages.size() == 1 ? ""
                               : stage_.name.empty()               ? std::to_string(stage_.number)
                                                                   : stage_.name,
                      .text = one_line(step.instruction->text, 500)};
  if (const auto* copy = std::get_if<CopyStep>(&step.action)) execute_copy(*copy, info);
  if (const auto* run = std::get_if<RunStep>(&step.action)) execute_run(*run, info);
}

void StageBuild::run_cached_step(const std::string& key, const StepInfo& info,
                                 const std::function<StepRecord()>& make) {
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
  built_.files.add(record->created);
  if (record->layer) {
    built_.layers.push_back(*record->layer);
    own_view_.reset();
  }
  work_.cached += cached ? 1 : 0;
  work_.report.end_step(
      info, cached, std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin));
}

}  // namespace adaptdl::image
