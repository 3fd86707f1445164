// The build cache: a directory in which builds store results for later builds.
//
//   blobs/        layers, configurations and manifests, by digest
//   steps/KEY     a step's result: its layer, and the paths that it created
//   trees/CHAIN   unpacked layers, by chain ID (layer_provider.h), for overlays
//   used/CHAIN    the size of a tree in bytes; the file's modification time is the tree's last use
//   downloads/KEY the results of ADD with a URL
//   files/KEY     the digests of a context's files
//   mounts/       directories for RUN --mount=type=cache
//   work/         temporary files of running builds
//   boot          the kernel's boot ID when the cache was last checked
//
// A build holds a shared lock on the cache; a process cleans the cache only while it holds the lock exclusively. Files
// receive their final names only when they are complete, so a killed build leaves a consistent cache. Nothing is synced
// to the disk, so files may lack their contents after a power failure: the first build after a reboot verifies the
// digests of all blobs, and removes the trees.
//
// Threading: any thread, and any number of processes, may use the cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/fd.h"
#include "image/layer/blob_store.h"
#include "image/registry/manifest.h"

namespace adaptdl::image {

// A layer of an image that is being built; it is in the blob store or in a registry.
struct BuiltLayer {
  Descriptor descriptor;
  std::string diff_id;
  std::string from;  // the reference to pull it from; empty if it was built locally
};

// What a COPY, ADD or WORKDIR created.
struct CreatedPaths {
  std::vector<std::string> directories;   // did not exist before, so everything in them was created, too
  std::vector<std::string> merged;        // directories that may have existed before: those of an archive or of --link
  std::vector<std::string> links, files;  // one file per directory if there are more than kMaxCreatedFiles
};
inline constexpr std::size_t kMaxCreatedFiles = 10'000;

// The result of a step.
struct StepRecord {
  std::optional<BuiltLayer> layer;  // unset if the step changed nothing
  std::int64_t date = 0;            // the image's time after the step
  CreatedPaths created;             // empty for RUN
};

class BuildCache {
 public:
  // Creates the cache if it does not exist. Throws Error.
  explicit BuildCache(std::filesystem::path directory);

  const BlobStore& blobs() const { return blobs_; }
  const std::filesystem::path& directory() const { return directory_; }

  // Returns nullopt if there is no record, or if its layer was deleted.
  std::optional<StepRecord> find_step(const std::string& key) const;
  void keep_step(const std::string& key, const StepRecord& record) const;

  // find() reads a small JSON file from the subdirectory `kind`, such as "downloads", and returns null if it does not
  // exist; keep() writes one, unless it would be too large to be read.
  nlohmann::json find(const std::string& kind, const std::string& key) const;
  void keep(const std::string& kind, const std::string& key, const nlohmann::json& value) const;

  // Returns the directory of an unpacked layer, and marks it as used; nullopt if there is none.
  std::optional<std::filesystem::path> find_tree(const std::string& chain_id) const;
  std::filesystem::path tree_path(const std::string& chain_id) const;
  void used_tree(const std::string& chain_id, std::uint64_t bytes) const;

  // Creates a directory below work/, which the caller must remove (remove_tree).
  std::filesystem::path work_directory() const;

  struct Pruned {
    std::uint64_t before = 0, after = 0;  // bytes
    bool busy = false;                    // nothing was removed because other builds are running
  };
  // Shrinks the cache to `limit` bytes, removing the least recently used files first; 0 empties it. If `wait` is set,
  // waits for other builds to end. REQUIRES: the process has no other BuildCache object. Throws Error or http::Stopped.
  Pruned prune(std::uint64_t limit, bool wait, const std::stop_token& stop = {});

 private:
  bool lock(int how);
  void clean_work() const;
  void check_after_boot() const;

  std::filesystem::path directory_;
  BlobStore blobs_;
  Fd lock_;
};

// Returns $ADAPTDL_BUILD_CACHE, else adaptdl/build in $XDG_CACHE_HOME or ~/.cache. Throws Error if these
// variables and HOME are all unset.
std::filesystem::path build_cache_directory();

// Returns a cache's size limit: `wanted` if set, else ADAPTDL_BUILD_CACHE_LIMIT, else the smaller of 20 GiB and a tenth
// of the disk. Throws UsageError.
std::uint64_t cache_limit(const std::optional<std::uint64_t>& wanted, const std::filesystem::path& directory);

// Writes the file atomically: after a failure its old contents are unchanged. Throws Error.
void write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace adaptdl::image
