// The descriptions of images in registries: manifests and indexes, of OCI and of Docker (schema 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "image/platform.h"

namespace adaptdl::image {

namespace media {
inline constexpr std::string_view kManifest = "application/vnd.oci.image.manifest.v1+json";
inline constexpr std::string_view kIndex = "application/vnd.oci.image.index.v1+json";
inline constexpr std::string_view kDockerManifest = "application/vnd.docker.distribution.manifest.v2+json";
inline constexpr std::string_view kDockerList = "application/vnd.docker.distribution.manifest.list.v2+json";
}  // namespace media

// Larger ones are rejected, as by registries.
inline constexpr std::size_t kLargestManifest = std::size_t{4} << 20;

// The type, digest and size of a blob or manifest.
struct Descriptor {
  std::string media_type, digest;
  std::uint64_t size = 0;            // bytes
  std::optional<Platform> platform;  // in an index
};

struct Manifest {
  std::string media_type, digest;
  std::string bytes;  // as stored in the registry
  Descriptor config;
  std::vector<Descriptor> layers;  // lowest first
};

struct Index {
  std::string media_type, digest;
  std::string bytes;
  std::vector<Descriptor> manifests;
};

// `type` is the media type that the server sent; empty: the one in the document. The digest is by sha256. Throws Error
// with the fault: not JSON, another kind of document, Docker's schema 1.
std::variant<Manifest, Index> parse_manifest(std::string bytes, std::string_view type);

// Returns the manifest that fits a machine best. Throws Error that lists the available platforms.
const Descriptor& choose(const Index& index, const Platform& machine);

}  // namespace adaptdl::image
