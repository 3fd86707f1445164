// Builds one stage: executes its steps in order, or takes their results from the cache.
//
// Lifetime: the arguments must outlive the object. Private to the builder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "image/build/base_images.h"
#include "image/build/builder.h"
#include "image/build/copy_plan.h"
#include "image/build/file_digests.h"
#include "image/build/image_config.h"
#include "image/build/layer_provider.h"
#include "image/build/stage_files.h"
#include "image/dockerfile/expansion.h"
#include "image/dockerfile/plan.h"
#include "image/layer/build_cache.h"
#include "image/sandbox/sandbox.h"

namespace adaptdl::image {

// The state of a stage that is being built, or is complete.
struct BuiltStage {
  StageState state;
  nlohmann::json base;  // the base image's configuration; null if there is none
  Platform platform;
  std::vector<BuiltLayer> layers;
  std::vector<HistoryEntry> history;
  std::string key;        // covers all steps so far
  std::int64_t date = 0;  // the newest file's time
  StageFiles files;
};

// The data that the stages of a build share.
struct BuildWork {
  const BuildOptions& options;
  BuildReport& report;
  const std::stop_token stop;
  const Dockerfile& dockerfile;
  const BuildSettings& settings;
  const BuildCache& cache;
  BaseImages& images;
  LayerProvider& provider;
  const FileTree& context;
  FileDigests& digests;
  unsigned threads = 1;

  std::map<std::size_t, BuiltStage> stages;
  std::map<std::string, std::unique_ptr<StageView>> views;  // for the sources that --from names, keyed by Origin::key
  std::size_t step = 0, steps = 0, cached = 0;              // counts of shown steps

  LayerOptions layer_options() const;
  // Returns the key of a step, or of another result in the cache; `parts` covers its inputs.
  std::string key_of(const nlohmann::json& parts) const;
  // Returns the context's files that `copy` names, with their digests.
  std::vector<CopySource> context_sources(const CopyStep& copy) const;
};

class StageBuild {
 public:
  StageBuild(BuildWork& work, const PlannedStage& planned);
  BuiltStage build();

 private:
  // The stage or image that --from or from= names: its key and its layers.
  struct Origin {
    std::string key;
    std::vector<BuiltLayer> layers;
  };

  BuiltStage base_state() const;
  void execute(const Step& step);
  void execute_copy(const CopyStep& copy, const StepInfo& info);
  void execute_run(const RunStep& run, const StepInfo& info);
  // Runs a step: takes the record for `key` from the cache or, if there is none, from `make`, and applies it.
  void run_cached_step(const std::string& key, const StepInfo& info, const std::function<StepRecord()>& make);

  Origin origin_of(const std::string& from) const;
  const FileTree& files_of(const Origin& origin);
  // Returns the stage's own files in their current state.
  const FileTree& own_files();
  std::optional<Owner> find_owner(const std::string& name);
  StepRecord write_files(const CopyInput& input);
  std::optional<StepMount> step_mount(const Mount& mount) const;
  SandboxStep sandbox_step(const RunStep& run, const std::filesystem::path& scratch) const;

  BuildWork& work_;
  const PlannedStage& planned_;
  const Stage& stage_;
  BuiltStage built_;
  std::unique_ptr<StageView> own_view_;
};

// Returns whether a step creates a layer. Only such steps are shown.
bool makes_layer(const Instruction& instruction);

BuiltLayer built_layer(const Layer& layer);

// Returns a digest of the contents and attributes of a context's files, except for their times, which do not matter.
std::string sources_key(const std::vector<CopySource>& sources);

}  // namespace adaptdl::image
