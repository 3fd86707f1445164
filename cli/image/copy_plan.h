// What a COPY's layer will hold: every source at its place below the destination, as BuildKit puts it there.
//
// A directory that is there already keeps its attributes, and is no entry; one that is missing is made. Directories
// above the destination that are missing belong to --chown's user.
// Threading: plain functions and values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/copy_items.h"
#include "image/layer_writer.h"
#include "image/stage_files.h"

namespace adaptdl::image {

// Of directories that are made on the way.
inline constexpr std::uint32_t kDirectoryMode = 0755;

// Where files are copied to.
struct Surroundings {
  std::function<PathKind(const std::string& path)> find;
  // With the links followed that are in the path.
  std::function<std::string(const std::string& path)> resolve;
};

struct Owner {
  std::uint32_t user = 0, group = 0;
};

// A file with content that is in no tree: a here-document, or what a URL gave.
struct GivenFile {
  Entry entry;  // its path is its name
  std::string content;
  std::filesystem::path file;  // instead of content
};

struct CopyInput {
  const Copy* copy = nullptr;
  const FileTree* tree = nullptr;  // of the sources; null if there are none of a tree
  std::vector<CopySource> sources;
  std::vector<GivenFile> given;
  std::optional<Owner> owner;
  std::int64_t date = 0;  // of directories that nobody has
  bool unpack = false;    // archives among the sources
};

struct PlannedEntry {
  Entry entry;
  const TreeFile* file = nullptr;  // where its content is: in the tree, or
  const GivenFile* given = nullptr;
};

struct PlannedCopy {
  std::map<std::string, PlannedEntry> entries;  // by path: sorted, directories before what is in them
  struct Archive {
    const TreeFile* file = nullptr;
    const GivenFile* given = nullptr;
    std::string at;  // the directory it is unpacked in
  };
  std::vector<Archive> archives;
};

// Null if it depends on files that nobody has looked at. Throws Error, without a place, for what cannot be. The input
// outlives the plan.
std::optional<PlannedCopy> plan_copy(const CopyInput& input, const Surroundings& to);

// The directories of `path` (the last included) that are missing, outermost first; null as above.
std::optional<std::vector<std::string>> missing_directories(const std::string& path, const Surroundings& to);

struct WrittenCopy {
  std::vector<std::string> directories, links;  // that were made
  std::size_t entries = 0;
};
WrittenCopy write_copy(const PlannedCopy& plan, const CopyInput& input, LayerWriter& layer,
                       const std::stop_token& stop);

}  // namespace adaptdl::image
