// What a COPY takes: its sources in a tree, by names, wildcards and directories, without what it excludes.
//
// Threading: plain functions and values.
#pragma once

#include <string>
#include <vector>

#include "image/dockerfile.h"
#include "image/file_tree.h"

namespace adaptdl::image {

struct CopyItem {
  std::string target;  // below the destination; "": the destination itself, as a directory
  TreeFile file;       // `file.entry.path` is where it is in the tree
  std::string digest;  // of a file's content; filled in by FileDigests
};

// One of COPY's sources, by itself or with all that is in it.
struct CopySource {
  std::string text;             // as the Dockerfile has it, expanded
  std::vector<CopyItem> items;  // directories before what is in them
  bool directory = false;       // what is in it is copied; with --parents, under its own path
};

// In the order of the sources; a wildcard that matches nothing gives nothing. URLs are no sources of a tree. Throws
// Error, without a place, for one that is not there, and names where it was looked for.
std::vector<CopySource> copy_sources(const FileTree& tree, const Copy& copy);

}  // namespace adaptdl::image
