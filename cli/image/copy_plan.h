// Plans the contents of a COPY's layer: every source at the place below the destination where BuildKit puts it.
//
// An existing directory keeps its attributes and gets no entry; a missing one is created. Missing directories above the
// destination get the owner of --chown.
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

// The mode of directories that are created implicitly.
inline constexpr std::uint32_t kDirectoryMode = 0755;

// The file system that files are copied into.
struct Surroundings {
  std::function<PathKind(const std::string& path)> find;
  // Returns the path with all links in it followed.
  std::function<std::string(const std::string& path)> resolve;
};

struct Owner {
  std::uint32_t user = 0, group = 0;
};

// A file whose content is not in a tree: a heredoc, or the download of a URL.
struct GivenFile {
  Entry entry;  // its path is the file's name
  std::string content;
  std::filesystem::path file;  // if set, replaces `content`
};

struct CopyInput {
  const Copy* copy = nullptr;
  const FileTree* tree = nullptr;  // of the sources; null if none of them is in a tree
  std::vector<CopySource> sources;
  std::vector<GivenFile> given;
  std::optional<Owner> owner;
  std::int64_t date = 0;  // of directories that are created
  bool unpack = false;    // whether archives among the sources are unpacked
};

struct PlannedEntry {
  Entry entry;
  const TreeFile* file = nullptr;  // the source of the content: either `file` in the tree, or `given`
  const GivenFile* given = nullptr;
};

struct PlannedCopy {
  std::map<std::string, PlannedEntry> entries;  // keyed by path, so that directories come before their contents
  struct Archive {
    const TreeFile* file = nullptr;
    const GivenFile* given = nullptr;
    std::string at;  // the directory it is unpacked into
  };
  std::vector<Archive> archives;
};

// Returns null if the plan depends on files that are not known yet. Throws Error, without file and line, if the copy is
// impossible. The input must outlive the plan.
std::optional<PlannedCopy> plan_copy(const CopyInput& input, const Surroundings& to);

// Returns the directories of `path`, inclusive, that do not exist, outermost first; null as above.
std::optional<std::vector<std::string>> missing_directories(const std::string& path, const Surroundings& to);

struct WrittenCopy {
  std::vector<std::string> directories, links;  // that were created
  std::size_t entries = 0;
};
WrittenCopy write_copy(const PlannedCopy& plan, const CopyInput& input, LayerWriter& layer,
                       const std::stop_token& stop);

}  // namespace adaptdl::image
