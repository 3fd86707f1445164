// Where a built image goes: an OCI directory, an archive for docker load, a registry.
//
// Threading: one thread; pushing has others of its own.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "image/build_cache.h"
#include "image/builder.h"
#include "image/layer_shelf.h"
#include "image/registry.h"

namespace adaptdl::image {

struct BuiltImage {
  std::string manifest, digest;  // its bytes, and their digest
  std::string config, config_digest;
  std::vector<BuiltLayer> layers;
};

// REQUIRES: all layers are in the store. What is there already stays; the index names this image alone. Throws Error.
void write_oci_directory(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                         const std::filesystem::path& directory);
// REQUIRES: all layers are in the store. Whole, or not at all. Throws Error.
void write_docker_archive(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                          const std::filesystem::path& file);
// To each of the tags. Layers that the registry has are not sent, and those of base images mounted where they can be.
// Returns REGISTRY/REPOSITORY@DIGEST of each. Throws Error, and http::Stopped.
std::vector<std::string> push_image(const BuiltImage& image, const std::vector<Reference>& tags,
                                    const BuildCache& cache, Registry& registry, LayerShelf& shelf, BuildReport& report,
                                    unsigned threads, const std::stop_token& stop);

}  // namespace adaptdl::image
