// Writes a built image to an OCI directory, an archive for docker load, or a registry.
//
// Threading: push_image() starts its own threads, which may call `report` concurrently.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "image/build/builder.h"
#include "image/build/layer_provider.h"
#include "image/layer/build_cache.h"
#include "image/registry/registry.h"

namespace adaptdl::image {

struct BuiltImage {
  std::string manifest, digest;  // the manifest's bytes, and their digest
  std::string config, config_digest;
  std::vector<BuiltLayer> layers;
};

// REQUIRES: all layers are in the blob store. Existing blobs are kept; the index lists only this image. Throws Error.
void write_oci_directory(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                         const std::filesystem::path& directory);
// REQUIRES: all layers are in the blob store. Writes the file atomically. Throws Error.
void write_docker_archive(const BuiltImage& image, const std::vector<Reference>& tags, const BuildCache& cache,
                          const std::filesystem::path& file);
// Pushes the image to each tag. Layers that the registry already stores are not sent, and base image layers are mounted
// where possible. Returns REGISTRY/REPOSITORY@DIGEST for each tag. Throws Error or http::Stopped.
std::vector<std::string> push_image(const BuiltImage& image, const std::vector<Reference>& tags,
                                    const BuildCache& cache, Registry& registry, LayerProvider& provider,
                                    BuildReport& report, unsigned threads, const std::stop_token& stop);

}  // namespace adaptdl::image
