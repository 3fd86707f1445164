// What a registry says of an image: manifests and indexes, of OCI and of Docker (schema 2).
//
// Values and plain functions; threading: any.
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

// A larger one is refused, as registries do.
inline constexpr std::size_t kLargestManifest = std::size_t{4} << 20;

// What stands behind a digest.
struct Descriptor {
  std::string media_type, digest;
  std::uint64_t size = 0;            // bytes
  std::optional<Platform> platform;  // in an index
};

struct Manifest {
  std::string media_type, digest;
  std::string bytes;  // as the registry has them
  Descriptor config;
  std::vector<Descriptor> layers;  // the lowest first
};

struct Index {
  std::string media_type, digest;
  std::string bytes;
  std::vector<Descriptor> manifests;
};

// `type` is the one that the server told; empty: the one that stands in it. The digest is by sha256. Throws Error that
// says what is wrong with it: not JSON, another kind of thing, Docker's schema 1.
std::variant<Manifest, Index> parse_manifest(std::string bytes, std::string_view type);

// The manifest for a machine: the one that fits best. Throws Error that names what there is.
const Descriptor& choose(const Index& index, const Platform& machine);

}  // namespace adaptdl::image
