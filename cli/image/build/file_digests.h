// The digests of a context's files, stored between builds so that unchanged files are not read again.
//
// A file is treated as unchanged if its size, times, inode and device are the same. The digest of a file that changed
// just before it was read is not stored, since another change shortly afterwards could leave the times unchanged.
// Threading: an object must be used from one thread at a time; it reads files in several threads. Lifetime: the tree
// must outlive the object.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "image/build/copy_items.h"

namespace adaptdl::image {

class FileDigests {
 public:
  // `memory` is the file that stores the digests; if it is missing or damaged, all files are read.
  FileDigests(const FileTree& tree, std::filesystem::path memory, unsigned threads);

  // Sets the digests of all files in `sources`. Throws Error, or http::Stopped after a stop request.
  void fill(std::vector<CopySource>& sources, const std::stop_token& stop);
  // Stores the digests of the files that fill() was called for. Write errors, such as a full disk, are ignored.
  void save();

 private:
  struct Known {
    FileStamp stamp;
    std::string digest;
    bool asked = false, lasting = true;
  };
  void load();

  const FileTree& tree_;
  const std::filesystem::path memory_;
  const unsigned threads_;
  std::unordered_map<std::string, Known> known_;  // keyed by path
  bool changed_ = false;
};

}  // namespace adaptdl::image
