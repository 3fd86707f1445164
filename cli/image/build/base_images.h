// The manifests and configurations of the images that a Dockerfile names, cached where possible.
//
// Every build resolves tags again, since they may have moved; content with a known digest is downloaded only once.
// Lifetime: the constructor's arguments must outlive the object.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "image/build/image_config.h"
#include "image/layer/build_cache.h"
#include "image/registry/registry.h"

namespace adaptdl::image {

struct BaseImage {
  std::string digest;  // the manifest's digest
  ParsedConfig config;
  std::vector<BuiltLayer> layers;
  // Returns whether the history or configuration suggests that the image contains the path (stage_files.h).
  bool may_have(const std::string& path) const;
};

class BaseImages {
 public:
  BaseImages(const BuildCache& cache, Registry& registry, std::stop_token stop)
      : cache_(cache), registry_(registry), stop_(std::move(stop)) {}

  // Throws an Error that names the image, or http::Stopped.
  const BaseImage& get(const std::string& name, const Platform& platform);

 private:
  Manifest manifest(const Reference& image, const Platform& platform);
  std::string config(const Reference& image, const Descriptor& descriptor);

  const BuildCache& cache_;
  Registry& registry_;
  const std::stop_token stop_;
  std::map<std::pair<std::string, std::string>, BaseImage> images_;
};

}  // namespace adaptdl::image
