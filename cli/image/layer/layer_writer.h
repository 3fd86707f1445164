// Writes a layer as a stream: a tar archive, compressed on several cores, into a blob store.
//
// The bytes depend only on the entries and the compression, not on the number of threads. A writer uses a few megabytes
// of memory, however large the files are. A gzip layer is a sequence of gzip members, and a zstd layer a sequence of
// frames, as both formats permit; each member or frame is compressed separately.
// Threading: a writer must be used from one thread; it starts its own threads. Lifetime: the store must outlive the
// writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>

#include "image/layer/blob_store.h"
#include "image/layer/entry.h"

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
  int level = 0;         // 0 for the default; gzip 1 (fast) to 12, zstd 1 to 19
  unsigned threads = 0;  // for compression; 0 for one per core
  // SOURCE_DATE_EPOCH, in seconds since 1970; it replaces all later times.
  std::int64_t latest_time = std::numeric_limits<std::int64_t>::max();
};

struct Layer {
  std::string media_type, digest;
  std::uint64_t size = 0;       // the blob's size in bytes
  std::string diff_id;          // the digest of the tar stream
  std::uint64_t tar_bytes = 0;  // size of the tar stream
  std::size_t entries = 0;      // including whiteouts
};

class LayerWriter {
 public:
  explicit LayerWriter(const BlobStore& store, const LayerOptions& options = {}, std::stop_token stop = {});
  // An unfinished layer leaves nothing in the store.
  ~LayerWriter();

  // Entries are written in the order of the calls; readers expect parents first. A non-empty file requires `content`.
  // Throws Error if the content's length differs from the entry's size (because the file has changed), if the name is
  // special in layers (.wh.…), or if the disk is full, and http::Stopped after a stop request.
  void add(const Entry& entry, const Content& content = {});
  // Hides this path in lower layers.
  void whiteout(const std::string& path);
  // Hides everything that lower layers contain in this directory.
  void opaque(const std::string& directory);

  std::size_t entries() const;
  // Completes the layer, and adds it to the store. Must be called once.
  Layer finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adaptdl::image
