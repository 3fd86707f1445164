// Reads the entries of a layer, or of a tar archive that ADD unpacks, as a stream.
//
// For any input, reading terminates, possibly with a one-line Error that names the archive, and uses only a few
// megabytes of memory. All entry paths are inside the root: a path that leads outside is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "image/layer/entry.h"

namespace adaptdl::image {

// Layers that exceed these limits are rejected as decompression bombs.
struct LayerLimits {
  // The tar stream's maximum size in bytes is `expanded`, plus `ratio` per compressed byte. The ratio is below
  // deflate's maximum of 1032, which only zeros reach, and far above the ratios of real files.
  std::uint64_t expanded = std::uint64_t{4} << 30;
  std::uint64_t ratio = 200;
  std::uint64_t entries = 4'000'000;
  std::size_t depth = 256;  // maximum number of nested directories
};

class LayerReader {
 public:
  // Error messages refer to the file as `name`, such as "layer sha256:…" or "ADD's archive x.tar.gz". Throws Error if
  // the file cannot be opened.
  LayerReader(const std::filesystem::path& file, std::string name, const LayerLimits& limits = {},
              std::stop_token stop = {});
  ~LayerReader();

  // Reads the next entry; returns false at the end. Whiteouts are returned as regular files. The target of a hard link
  // need not exist. Throws Error, or http::Stopped after a stop request.
  bool next(Entry& entry);
  // Reads the current entry's content in order, with holes as zeros; returns 0 at its end. next() skips unread content.
  std::size_t read(char* data, std::size_t size);

  // Returns the digest of the whole tar stream. REQUIRES: next() has returned false.
  std::string diff_id();
  std::uint64_t tar_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns whether ADD unpacks the file, that is, whether its content is a tar archive, plain or compressed with gzip,
// bzip2, xz or zstd.
bool is_archive(const std::filesystem::path& file);

}  // namespace adaptdl::image
