// Determines the stages and images that a target needs, in the order of the build; all others are left out.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/dockerfile.h"
#include "image/expansion.h"

namespace adaptdl::image {

// The origin of copied files, or the base of a stage: a stage, an image, or neither.
struct Source {
  std::optional<std::size_t> stage;  // its number
  std::string image;                 // as the Dockerfile names it; "" without a stage: an empty image ("scratch")
  Platform platform;                 // of the image
};

struct PlannedStage {
  std::size_t number = 0;
  Source base;
  Platform platform;
  std::map<std::string, Source> sources;  // keyed by --from and from=, as written, in its instructions and triggers
  std::vector<Instruction> triggers;      // the ONBUILDs of its base, which are executed first
};

struct NeededImage {
  std::string image;
  Platform platform;
  Lines lines;        // where it is first needed
  bool base = false;  // it is the base of a stage, so its configuration is needed, too
};

struct Plan {
  std::vector<PlannedStage> stages;  // each after those that it needs; the target is last
  std::vector<NeededImage> images;   // each pair of image and platform once
};

// The ONBUILDs of images, keyed by their names in the Dockerfile; images that are not known yet have none. As a trigger
// may need further stages and images, callers read the triggers of a plan's base images, and plan again with them.
using ImageTriggers = std::map<std::string, std::vector<std::string>>;

// `settings.target_stage` is a stage's name or number. Throws Error with file and line, or with the available stages.
Plan make_plan(const Dockerfile& dockerfile, const BuildSettings& settings, const ImageTriggers& triggers = {});

}  // namespace adaptdl::image
