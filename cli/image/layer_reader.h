// Reads the entries of a layer, or of a tar archive that ADD unpacks, as a stream.
//
// For any input, reading terminates, possibly with an Error of one line that names the archive, and uses a few
// megabytes of memory. Paths of entries are inside the root: one that leads outside is an Error.
// Threading: a reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "image/entry.h"

namespace adaptdl::image {

// Layers that exceed these limits are rejected as decompression bombs.
struct LayerLimits {
  // Max bytes of the tar stream: `expanded`, plus `ratio` per compressed byte. The ratio is lower than deflate's 1032,
  // which only zeros reach, and far above that of the files of real systems.
  std::uint64_t expanded = std::uint64_t{4} << 30;
  std::uint64_t ratio = 200;
  std::uint64_t entries = 4'000'000;
  std::size_t depth = 256;  // of nested directories
};

class LayerReader {
 public:
  // Errors call the file `name`: "layer sha256:…", "ADD's archive x.tar.gz". Throws Error if it cannot be opened.
  LayerReader(const std::filesystem::path& file, std::string name, const LayerLimits& limits = {},
              std::stop_token stop = {});
  ~LayerReader();

  // Reads the next entry; returns false at the end. Whiteouts are returned as regular files. Targets of hard links are
  // not required to exist. Throws Error, and http::Stopped at a stop.
  bool next(Entry& entry);
  // Reads the current entry's content in order, holes as zeros; returns 0 at its end. Unread content is skipped.
  std::size_t read(char* data, std::size_t size);

  // Returns the digest of the whole tar stream. REQUIRES: next() has returned false.
  std::string diff_id();
  std::uint64_t tar_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns whether ADD unpacks the file: a tar archive, plain or compressed with gzip, bzip2, xz or zstd, with any name.
bool is_archive(const std::filesystem::path& file);

}  // namespace adaptdl::image
