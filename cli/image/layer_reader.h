// Goes through the entries of a layer, or of a tar archive that ADD unpacks, as its bytes come.
//
// Whatever the bytes are, reading ends in an end or in an Error of one line that names the archive; memory stays at a
// few megabytes. Entries have paths inside the root: one that would lead outside is an Error.
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

// What is more than this is taken for a bomb.
struct LayerLimits {
  // Bytes of the tar stream: this many, and so many for each compressed one. Lower than deflate's 1032, which only
  // zeros reach, and far over what files of a real system do.
  std::uint64_t expanded = std::uint64_t{4} << 30;
  std::uint64_t ratio = 200;
  std::uint64_t entries = 4'000'000;
  std::size_t depth = 256;  // directories in one another
};

class LayerReader {
 public:
  // `name` stands for the file in errors: "layer sha256:…", "ADD's archive x.tar.gz". Throws Error if the file cannot
  // be opened.
  LayerReader(const std::filesystem::path& file, std::string name, const LayerLimits& limits = {},
              std::stop_token stop = {});
  ~LayerReader();

  // The next entry; false at the end. Whiteouts come as the files that they are. Hard links to what has not come are
  // not checked here. Throws Error, and http::Stopped at a stop.
  bool next(Entry& entry);
  // Of the present entry, in order, holes as zeros; 0 at its end. What is not read is skipped.
  std::size_t read(char* data, std::size_t size);

  // The digest of the tar stream, to its very end. REQUIRES: next() has returned false.
  std::string diff_id();
  std::uint64_t tar_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether it is what ADD unpacks: a tar archive, plain or compressed by gzip, bzip2, xz or zstd, whatever its name.
bool is_archive(const std::filesystem::path& file);

}  // namespace adaptdl::image
