// Finds the sources of a COPY in a tree: files, wildcard matches and directory contents, without excluded paths.
#pragma once

#include <string>
#include <vector>

#include "image/dockerfile.h"
#include "image/file_tree.h"

namespace adaptdl::image {

struct CopyItem {
  std::string target;  // path below the destination; "": the destination itself, as a directory
  TreeFile file;       // `file.entry.path` is its path in the tree
  std::string digest;  // of a file's content; set by FileDigests
};

// One of COPY's sources: a file, or a directory with everything in it.
struct CopySource {
  std::string text;             // as in the Dockerfile, expanded
  std::vector<CopyItem> items;  // directories before their contents
  bool directory = false;       // its contents are copied; with --parents, under its own path
};

// Returns the sources in their order; a wildcard without a match gives none, and URLs are skipped. Throws Error,
// without file and line, for a source that does not exist; the message names the tree that was searched.
std::vector<CopySource> copy_sources(const FileTree& tree, const Copy& copy);

}  // namespace adaptdl::image
