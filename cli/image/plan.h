// Which stages a target needs, in the order in which they are built, and which images; the others are left out.
//
// Threading: plain functions and values.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/dockerfile.h"
#include "image/expansion.h"

namespace adaptdl::image {

// What files come from, or a stage is built on: one of the three.
struct Source {
  std::optional<std::size_t> stage;  // by its number
  std::string image;                 // as the Dockerfile names it; "" with no stage: an empty image ("scratch")
  Platform platform;                 // of an image
};

struct PlannedStage {
  std::size_t number = 0;
  Source base;
  Platform platform;
  std::map<std::string, Source> sources;  // of --from and from= in its instructions and triggers, as written
  std::vector<Instruction> triggers;      // the ONBUILDs of its base, to be run first
};

struct NeededImage {
  std::string image;
  Platform platform;
  Lines lines;        // where it is needed first
  bool base = false;  // a stage is built on it, so its configuration is needed too
};

struct Plan {
  std::vector<PlannedStage> stages;  // each after those that it needs; the target is the last
  std::vector<NeededImage> images;   // each image and platform once
};

// The ONBUILDs that images say, by the name that the Dockerfile has for them. An image that is not there yet has none:
// plan, ask the base images, and plan again with what they say, as a trigger may need further stages and images.
using ImageTriggers = std::map<std::string, std::vector<std::string>>;

// `settings.target_stage` is a stage's name or number. Throws Error: with the place, or with the stages that there are.
Plan make_plan(const Dockerfile& dockerfile, const BuildSettings& settings, const ImageTriggers& triggers = {});

}  // namespace adaptdl::image
