// Writes a layer as it comes: a tar stream, compressed on several cores, into a blob store.
//
// The bytes depend on the entries and the compression alone, not on the number of threads. A writer holds a few
// megabytes, whatever the size of the files. gzip layers are gzip members one after another, and zstd layers frames one
// after another, as both formats allow: each is compressed on its own.
// Threading: a writer belongs to one thread; it has threads of its own. Lifetime: the store outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>

#include "image/blob_store.h"
#include "image/entry.h"

namespace adaptdl::image {

namespace media {
inline constexpr std::string_view kLayer = "application/vnd.oci.image.layer.v1.tar";
inline constexpr std::string_view kLayerGzip = "application/vnd.oci.image.layer.v1.tar+gzip";
inline constexpr std::string_view kLayerZstd = "application/vnd.oci.image.layer.v1.tar+zstd";
inline constexpr std::string_view kDockerLayerGzip = "application/vnd.docker.image.rootfs.diff.tar.gzip";
}  // namespace media

enum class Compression { kNone, kGzip, kZstd };

struct LayerOptions {
  Compression compression = Compression::kGzip;
  int level = 0;         // 0: the usual one; gzip 1 (fast) to 12, zstd 1 to 19
  unsigned threads = 0;  // that compress; 0: one a core
  // SOURCE_DATE_EPOCH: later times become this.
  std::int64_t latest_time = std::numeric_limits<std::int64_t>::max();
};

struct Layer {
  std::string media_type, digest;
  std::uint64_t size = 0;       // bytes as it is in the store
  std::string diff_id;          // the digest of the tar stream
  std::uint64_t tar_bytes = 0;  // of it
  std::size_t entries = 0;      // whiteouts among them
};

class LayerWriter {
 public:
  explicit LayerWriter(const BlobStore& store, const LayerOptions& options = {}, std::stop_token stop = {});
  // What was not finished leaves nothing in the store.
  ~LayerWriter();

  // Entries are written in the order in which they come: parents first is what everyone expects. A file with a size
  // needs its content. Throws Error for a content that is not as long as the entry says (it changed meanwhile), for a
  // name that layers give a meaning (.wh.…), and for a full disk; http::Stopped at a stop.
  void add(const Entry& entry, const Content& content = {});
  // Lower layers have no such path from here on.
  void whiteout(const std::string& path);
  // Lower layers have nothing in this directory from here on.
  void opaque(const std::string& directory);

  std::size_t entries() const;
  // Ends it, and puts it into the store. Once.
  Layer finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::image
