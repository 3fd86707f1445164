// Builds one stage: its steps one after the other, each from the cache or anew.
//
// Threading: one thread at a time. Lifetime: all that it is given outlives it. Private to the builder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "image/base_images.h"
#include "image/build_cache.h"
#include "image/builder.h"
#include "image/copy_plan.h"
#include "image/expansion.h"
#include "image/file_digests.h"
#include "image/image_config.h"
#include "image/layer_shelf.h"
#include "image/plan.h"
#include "image/sandbox.h"
#include "image/stage_files.h"

namespace adaptdl::image {

// A stage as far as it is built.
struct BuiltStage {
  StageState state;
  nlohmann::json base;  // the configuration of the image below; null: none
  Platform platform;
  std::vector<BuiltLayer> layers;
  std::vector<HistoryEntry> history;
  std::string key;        // of all steps until now
  std::int64_t date = 0;  // of the newest file
  StageFiles files;
};

// What the stages of a build share.
struct BuildWork {
  const BuildOptions& options;
  BuildReport& report;
  const std::stop_token stop;
  const Dockerfile& dockerfile;
  const BuildSettings& settings;
  const BuildCache& cache;
  BaseImages& images;
  LayerShelf& shelf;
  const FileTree& context;
  FileDigests& digests;
  unsigned threads = 1;

  std::map<std::size_t, BuiltStage> stages;
  std::map<std::string, std::unique_ptr<StageView>> views;  // of what --from names, by key
  std::size_t step = 0, steps = 0, cached = 0;              // those that are shown

  LayerOptions layer_options() const;
};

class StageBuild {
 public:
  StageBuild(BuildWork& work, const PlannedStage& planned);
  BuiltStage build();

 private:
  // What a step takes from: key and layers of a stage or image.
  struct From {
    std::string key;
    std::vector<BuiltLayer> layers;
  };

  BuiltStage begin() const;
  From from(const std::string& name) const;
  const FileTree& view_of(const From& from);
  // The stage's own files, as they are now.
  const FileTree& own_files();

  void step(const Step& step);
  void copy(const Step& step, const Copy& copy, const StepInfo& info);
  void workdir(const Step& step, const Workdir& workdir, const StepInfo& info);
  void run_step(const Step& step, const Run& run, const StepInfo& info);

  // Takes the record of `key` from the cache, or makes one; and goes on from it.
  void finish(const std::string& key, const StepInfo& info, const std::function<StepRecord()>& make, bool runs = false);
  std::string key_of(const nlohmann::json& parts) const;
  std::optional<Owner> owner(const std::string& name);
  Surroundings known_surroundings(bool nothing) const;
  Surroundings seen_surroundings();
  StepRecord write(const CopyInput& input, bool link);
  Run::Network network_of(const Run& run) const;
  SandboxStep sandbox(const Step& step, const Run& run, const std::filesystem::path& scratch);
  std::optional<StepMount> step_mount(const Mount& mount);
  // What a bind of the context shows: its files, and a key of them.
  std::vector<CopySource> context_sources(const std::string& source, std::string& key);
  BuiltLayer context_layer(const std::string& source);

  BuildWork& work_;
  const PlannedStage& planned_;
  const Stage& stage_;
  BuiltStage built_;
  std::unique_ptr<StageView> own_view_;
};

// Whether a step makes a layer, so that it is shown.
bool makes_layer(const Instruction& instruction);

// All that counts of a context's files: not their times.
std::string sources_key(const std::vector<CopySource>& sources);

}  // namespace adaptdl::image
