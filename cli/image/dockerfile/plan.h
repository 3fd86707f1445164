// Determines the stages and images that a target needs, in build order; all others are omitted.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/dockerfile/dockerfile.h"
#include "image/dockerfile/expansion.h"

namespace adaptdl::image {

// The origin of copied files, or the base of a stage: a stage, an image, or neither.
struct Source {
  std::optional<std::size_t> stage;  // the stage's number
  std::string image;                 // as named in the Dockerfile; "" without a stage means an empty image ("scratch")
  Platform platform;                 // the image's platform
};

struct PlannedStage {
  std::size_t number = 0;
  Source base;
  Platform platform;
  std::map<std::string, Source> sources;  // keyed by --from or from=, as written in the instructions and triggers
  std::vector<Instruction> triggers;      // the base's ONBUILDs, which are executed first
};

struct NeededImage {
  std::string image;
  Platform platform;
  Lines lines;        // where the image is first needed
  bool base = false;  // whether the image is a stage's base, so that its configuration is also needed
};

struct Plan {
  std::vector<PlannedStage> stages;  // each after the stages that it needs; the target is last
  std::vector<NeededImage> images;   // each combination of image and platform once
};

// The ONBUILDs of base images, keyed by the images' names in the Dockerfile; images that have not been read yet are
// missing. Since a trigger may need further stages and images, callers read the triggers of a plan's base images, and
// then plan again.
using ImageTriggers = std::map<std::string, std::vector<std::string>>;

// `settings.target_stage` is a stage's name or number. Throws an Error that states the file and line, or lists the
// available stages.
Plan make_plan(const Dockerfile& dockerfile, const BuildSettings& settings, const ImageTriggers& triggers = {});

}  // namespace adaptdl::image
