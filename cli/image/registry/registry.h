// A client for image registries, which pulls and pushes according to the OCI distribution specification. All content is
// checked against its digest.
//
// Calls retry transient failures (a broken connection, 429, 5xx), and resume transfers. Other failures throw a one-line
// Error that names the image and the remedy. After a stop request, calls throw http::Stopped within a fraction of a
// second.
// Threading: any number of threads may call the methods concurrently; callbacks run on the calling thread. Connections
// stay open between calls.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "image/registry/manifest.h"
#include "image/registry/reference.h"
#include "image/registry/registry_options.h"

namespace adaptdl::image {

// Called with the number of bytes transferred since the last call; negative if some must be transferred again.
using Progress = std::function<void(std::int64_t)>;

// A blob to push. `read` reads up to `size` bytes at `offset`, and returns their number; it may be called several times
// for the same part. An exception that it throws ends the push.
struct Blob {
  std::string digest;
  std::uint64_t size = 0;
  std::function<std::size_t(std::uint64_t offset, char* data, std::size_t size)> read;
};
Blob file_blob(const std::filesystem::path& file, const std::string& digest);  // throws Error if it cannot be opened
Blob memory_blob(std::string bytes);                                           // with its sha256 digest

enum class Pushed { kWasThere, kMounted, kUploaded };

class Registry {
 public:
  explicit Registry(RegistryOptions options = {});
  ~Registry();

  // Returns the manifest or index that the reference names.
  std::variant<Manifest, Index> pull(const Reference& image, const std::stop_token& stop = {});
  // Returns the manifest that the reference names or, if the reference names an index, the index's manifest for
  // `machine`.
  Manifest pull_manifest(const Reference& image, const Platform& machine, const std::stop_token& stop = {});
  // Passes a blob's bytes to `sink`, in order, each byte once. Throws Error at the end if the bytes do not match the
  // digest.
  void pull_blob(const Reference& image, const Descriptor& blob, const std::function<void(std::string_view)>& sink,
                 const std::stop_token& stop = {}, const Progress& progress = {});

  // Returns false if the registry does not contain the blob or answers 500.
  bool has_blob(const Reference& image, const std::string& digest, const std::stop_token& stop = {});
  // Sends nothing if the image's repository already contains the blob, or if the registry can mount it from one of the
  // repositories `others`.
  Pushed push_blob(const Reference& image, const Blob& blob, const std::vector<std::string>& others = {},
                   const std::stop_token& stop = {}, const Progress& progress = {});
  // Pushes a manifest under the reference's tag; without a tag, under its digest; without either, as "latest". Returns
  // the digest.
  std::string push_manifest(const Reference& image, const std::string& media_type, const std::string& bytes,
                            const std::stop_token& stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::image
