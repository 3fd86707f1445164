// What builds keep from one to the next, in one directory:
//
//   blobs/        layers, configurations and manifests, by digest
//   steps/KEY     what came out of a step: its layer, and what is known of it
//   trees/DIFF    layers unpacked, for overlays
//   used/DIFF     when a tree was used last, and its bytes
//   downloads/KEY what a URL of ADD gave
//   files/KEY     the digests of a context's files
//   mounts/       RUN --mount=type=cache
//   work/         what builds that go on write
//   boot          the start of the machine, by the kernel's boot id, since which all of this was written or checked
//
// A build holds the cache open for the time that it takes; it is cleaned by who has it alone. All that has a name is
// whole, so that a build that is killed leaves a good cache. Nothing is synced to the disk, so after a power cut files
// may lack their contents: the first build after a start of the machine compares all blobs with their digests, and
// removes the trees.
//
// Threading: any thread, and any number of processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/blob_store.h"
#include "image/manifest.h"
#include "socket.h"

namespace adaptdl::image {

// A layer of an image that is being built: in the store, or in a registry.
struct BuiltLayer {
  Descriptor descriptor;
  std::string diff_id;
  std::string from;  // the reference it can be pulled by; empty: it was made here
};

// What came out of a step.
struct StepRecord {
  std::optional<BuiltLayer> layer;       // none: it changed nothing
  std::int64_t date = 0;                 // the image's time after it
  std::vector<std::string> directories;  // that it made, and links: all below these is known
  std::vector<std::string> links;
};

class BuildCache {
 public:
  // Makes it if it is not there. Throws Error.
  explicit BuildCache(std::filesystem::path directory);

  const BlobStore& blobs() const { return blobs_; }
  const std::filesystem::path& directory() const { return directory_; }

  // Null if it is not there, or its layer is not any more.
  std::optional<StepRecord> find_step(const std::string& key) const;
  void keep_step(const std::string& key, const StepRecord& record) const;

  // A small JSON file in a directory of its own kind, such as "downloads"; null if there is none.
  nlohmann::json find(const std::string& kind, const std::string& key) const;
  void keep(const std::string& kind, const std::string& key, const nlohmann::json& value) const;

  // The directory of a layer that is unpacked, which counts as used now; null if there is none.
  std::optional<std::filesystem::path> find_tree(const std::string& chain_id) const;
  std::filesystem::path tree_path(const std::string& chain_id) const;
  void used_tree(const std::string& chain_id, std::uint64_t bytes) const;

  // A new directory below work/, which is the caller's to remove (remove_tree).
  std::filesystem::path work_directory() const;

  struct Pruned {
    std::uint64_t before = 0, after = 0;  // bytes
    bool busy = false;                    // other builds go on: nothing was removed
  };
  // Brings it down to `limit` bytes, what was not used longest first; 0 empties it. With `wait` until other builds have
  // ended. This object is the only one of the process. Throws Error, and http::Stopped.
  Pruned prune(std::uint64_t limit, bool wait, const std::stop_token& stop = {});

 private:
  bool lock(int how);
  void clean_work() const;
  void check_after_boot() const;

  std::filesystem::path directory_;
  BlobStore blobs_;
  net::Fd lock_;
};

// Of a cache: `wanted`, else ADAPTDL_BUILD_CACHE_LIMIT, else 20 GiB or a tenth of its disk if that is less. Throws
// UsageError.
std::uint64_t cache_limit(const std::optional<std::uint64_t>& wanted, const std::filesystem::path& directory);

// `text` as a file, whole or not at all. Throws Error.
void write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace adaptdl::image
