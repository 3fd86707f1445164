// The digests of a context's files, remembered from build to build, so that what did not change is not read again.
//
// A file counts as unchanged if its size, times, inode and device are the same. What was changed so shortly before it
// was read that a later change could leave the same times is not remembered.
// Threading: one thread at a time; files are read by several. Lifetime: the tree and the file of memories outlive it.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "image/copy_items.h"

namespace adaptdl::image {

class FileDigests {
 public:
  // `memory` is the file that remembers; one that is not there or damaged remembers nothing.
  FileDigests(const FileTree& tree, std::filesystem::path memory, unsigned threads);

  // Fills in the digests of all files among them. Throws Error, and http::Stopped at a stop.
  void fill(std::vector<CopySource>& sources, const std::stop_token& stop);
  // Writes down what is known now, of files that were asked for. A full disk is no error.
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
  std::unordered_map<std::string, Known> known_;  // by path
  bool changed_ = false;
};

}  // namespace adaptdl::image
