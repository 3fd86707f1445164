// Registries of images: what they have is pulled, and what is built is pushed, as the OCI distribution specification
// has it. Whatever comes is checked against its digest.
//
// Every call tries again what may pass (a broken connection, 429, 5xx) and goes on where it was. Whatever is wrong ends
// in an Error of one line that names the image and the way out; a stop in http::Stopped, within a fraction of a second.
// Threading: may be used from any thread at once. Lifetime: keeps connections; a call's functions are called from the
// thread of the call.
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

#include "image/manifest.h"
#include "image/reference.h"
#include "image/registry_options.h"

namespace adaptdl::image {

// Bytes that have gone over since the last call; less than 0 when some have to go once more.
using Progress = std::function<void(std::int64_t)>;

// A blob to push: `read` gives up to `size` bytes from `offset` on, and returns how many; it may be asked for any part
// again. What it throws ends the push.
struct Blob {
  std::string digest;
  std::uint64_t size = 0;
  std::function<std::size_t(std::uint64_t offset, char* data, std::size_t size)> read;
};
Blob file_blob(const std::filesystem::path& file, const std::string& digest);  // Throws Error if it cannot be opened.
Blob memory_blob(std::string bytes);                                           // with its digest by sha256

enum class Pushed { kWasThere, kMounted, kUploaded };

class Registry {
 public:
  explicit Registry(RegistryOptions options = {});
  ~Registry();

  // What the reference names.
  std::variant<Manifest, Index> pull(const Reference& image, const std::stop_token& stop = {});
  // The manifest for `machine`, which the reference names or an index of it lists.
  Manifest pull_manifest(const Reference& image, const Platform& machine, const std::stop_token& stop = {});
  // Gives all bytes of a blob to `sink`, in order and once each. Throws after the last if they are not the digest's.
  void pull_blob(const Reference& image, const Descriptor& blob, const std::function<void(std::string_view)>& sink,
                 const std::stop_token& stop = {}, const Progress& progress = {});

  bool has_blob(const Reference& image, const std::string& digest, const std::stop_token& stop = {});
  // Sends nothing that the registry has in the image's repository, or in one of `others` of the same registry.
  Pushed push_blob(const Reference& image, const Blob& blob, const std::vector<std::string>& others = {},
                   const std::stop_token& stop = {}, const Progress& progress = {});
  // By the reference's tag, or by its digest alone if that is all it has. Returns the digest.
  std::string push_manifest(const Reference& image, const std::string& media_type, const std::string& bytes,
                            const std::stop_token& stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::image
