// The descriptions of images in registries: OCI and Docker (schema 2) manifests and indexes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "image/base/platform.h"

namespace adaptdl::image {

namespace media {
inline constexpr std::string_view kManifest = "application/vnd.oci.image.manifest.v1+json";
inline constexpr std::string_view kIndex = "application/vnd.oci.image.index.v1+json";
inline constexpr std::string_view kDockerManifest = "application/vnd.docker.distribution.manifest.v2+json";
inline constexpr std::string_view kDockerList = "application/vnd.docker.distribution.manifest.list.v2+json";
}  // namespace media

// Larger manifests are rejected; registries reject them as well.
inline constexpr std::size_t kMaxManifestSize = std::size_t{4} << 20;

// The type, digest and size of a blob or manifest.
struct Descriptor {
  std::string media_type, digest;
  std::uint64_t size = 0;            // bytes
  std::optional<Platform> platform;  // set only in an index
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

// Parses a manifest or an index. `type` is the media type that the server sent; if it is empty, the document's own
// media type applies. The digest is a sha256 digest. Throws an Error that describes the problem: not JSON, another kind
// of document, or Docker's schema 1.
std::variant<Manifest, Index> parse_manifest(std::string bytes, std::string_view type);

// Returns the manifest that fits a machine best. Throws an Error that lists the available platforms.
const Descriptor& choose(const Index& index, const Platform& machine);

}  // namespace adaptdl::image
