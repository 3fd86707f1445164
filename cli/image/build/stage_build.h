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
  std::map<std::string, std::unique_ptr<StageView>> views;  // for the sources that --from names, keyed by From::key
  std::size_t step = 0, steps = 0, cached = 0;              // counts of shown steps

  LayerOptions layer_options() const;
};

class StageBuild {
 public:
  StageBuild(BuildWork& work, const PlannedStage& planned);
  BuiltStage build();

 private:
  // The source of a step's files: the key and the layers of a stage or image.
  struct From {
    std::string key;
    std::vector<BuiltLayer> layers;
  };

  BuiltStage begin() const;
  From from(const std::string& name) const;
  const FileTree& view_of(const From& from);
  // Returns the stage's own files in their current state.
  const FileTree& own_files();

  void step(const Step& step);
  void copy(const Step& step, const Copy& copy, const StepInfo& info);
  void workdir(const Step& step, const Workdir& workdir, const StepInfo& info);
  void run_step(const Step& step, const Run& run, const StepInfo& info);

  // Applies the record for `key`, taken from the cache or created by `make`. If `runs` is set, the step may have
  // changed any file.
  void finish(const std::string& key, const StepInfo& info, const std::function<StepRecord()>& make, bool runs = false);
  std::string key_of(const nlohmann::json& parts) const;
  std::optional<Owner> owner(const std::string& name);
  TargetFiles known_target_files(bool nothing) const;
  TargetFiles observed_target_files();
  StepRecord write(const CopyInput& input, bool link);
  Run::Network network_of(const Run& run) const;
  SandboxStep sandbox(const Step& step, const Run& run, const std::filesystem::path& scratch);
  std::optional<StepMount> step_mount(const Mount& mount);
  // Returns the files in a bind mount of the context, and sets `key` to their key.
  std::vector<CopySource> context_sources(const std::string& source, std::string& key);
  BuiltLayer context_layer(const std::string& source);

  BuildWork& work_;
  const PlannedStage& planned_;
  const Stage& stage_;
  BuiltStage built_;
  std::unique_ptr<StageView> own_view_;
};

// Returns whether a step creates a layer. Only such steps are shown.
bool makes_layer(const Instruction& instruction);

// Returns a digest of the contents and attributes of a context's files, except for their times, which do not matter.
std::string sources_key(const std::vector<CopySource>& sources);

}  // namespace adaptdl::image
