// Finds a COPY's sources in a tree: files, wildcard matches and directory contents, without excluded paths.
#pragma once

#include <string>
#include <vector>

#include "image/dockerfile/expansion.h"
#include "image/layer/file_tree.h"

namespace adaptdl::image {

struct CopyItem {
  std::string target;  // path below the destination; "" for the destination itself, as a directory
  TreeFile file;       // `file.entry.path` is its path in the tree
  std::string digest;  // the file content's digest, set by FileDigests
};

// One of COPY's sources: a file, or a directory with everything in it.
struct CopySource {
  std::string text;             // as in CopyStep
  std::vector<CopyItem> items;  // directories before their contents
  bool directory = false;       // whether a directory's contents are copied; --parents keeps the directory's path
};

// Returns the sources in order. A wildcard without a match yields no source, and URLs are skipped. Throws Error,
// without file or line, if a source does not exist; the message names the searched tree.
std::vector<CopySource> copy_sources(const FileTree& tree, const CopyStep& copy);

}  // namespace adaptdl::image
