// Plans the contents of a COPY's layer: below the destination, every source has the path that BuildKit would give it.
//
// An existing directory keeps its attributes and has no entry in the plan; a missing directory is created. All entries,
// including missing directories above the destination, belong to the owner that --chown specifies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/build/copy_items.h"
#include "image/build/stage_files.h"
#include "image/layer/layer_writer.h"

namespace adaptdl::image {

// The file system that files are copied into.
struct TargetFiles {
  std::function<PathKind(const std::string& path)> find;
  // Returns the path with all of its links resolved.
  std::function<std::string(const std::string& path)> resolve;
};
// The argument must outlive the result.
TargetFiles target_files(const StageFiles& files);
TargetFiles target_files(const FileTree& files);

struct Owner {
  std::uint32_t user = 0, group = 0;
};

// A file whose content is not in a tree: a heredoc, or a file downloaded from a URL.
struct GivenFile {
  Entry entry;  // its path is the file's name
  std::string content;
  std::filesystem::path file;  // if set, replaces `content`
};

struct CopyInput {
  const CopyStep* copy = nullptr;
  const FileTree* tree = nullptr;  // contains the sources; null if no source is in a tree
  std::vector<CopySource> sources;
  std::vector<GivenFile> given;
  std::int64_t date = 0;  // the time of directories that are created
  bool unpack = false;    // whether archives among the sources are unpacked
};

struct PlannedEntry {
  Entry entry;
  const TreeFile* file = nullptr;  // the content comes either from `file` in the tree, or from `given`
  const GivenFile* given = nullptr;
};

struct PlannedCopy {
  std::map<std::string, PlannedEntry> entries;  // keyed by path, so that directories come before their contents
  struct Archive {
    const TreeFile* file = nullptr;
    const GivenFile* given = nullptr;
    std::string at;  // the directory that the archive is unpacked into
  };
  std::vector<Archive> archives;
};

// Returns nullopt if the plan depends on files that are not known yet. Throws Error, without file or line, if the copy
// is impossible. The input must outlive the plan.
std::optional<PlannedCopy> plan_copy(const CopyInput& input, const TargetFiles& to);

// Writes the planned entries. Without an owner, they keep the owners of their sources.
CreatedPaths write_copy(const PlannedCopy& plan, const CopyInput& input, const std::optional<Owner>& owner,
                        LayerWriter& layer, const std::stop_token& stop);

}  // namespace adaptdl::image
