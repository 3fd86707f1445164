// The files in a directory that COPY reads: a build context without its ignored files, or a stage's files.
//
// Nothing outside the directory is ever accessed: links are resolved as if the directory were the root, and if another
// process replaces a directory with a link, the link is not followed.
// Threading: const methods may be called from several threads at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "image/dockerfile/ignore_file.h"
#include "image/layer/entry.h"

namespace adaptdl::image {

// Identifies a file's contents: the stamp differs after a change.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t modified = 0, changed = 0;  // in nanoseconds since 1970
  bool operator==(const FileStamp&) const = default;
};

struct TreeFile {
  Entry entry;  // its path is relative to the tree's root
  FileStamp stamp;
  std::uint64_t links = 1;
};

class FileTree {
 public:
  // A context's files belong to root and have no extended attributes; a stage's files keep owners and attributes.
  enum class Kind { kContext, kStage };
  // Throws Error if `root` is not a directory, or cannot be read.
  FileTree(const std::filesystem::path& root, Kind kind, IgnoreFile ignore = {});

  // Paths are relative to the root; "" is the root itself. Links are not followed: a path with a link in the middle is
  // treated as missing. Returns nullopt if the file is missing or ignored. Throws an Error that names the path.
  std::optional<TreeFile> find(const std::string& path) const;
  // Returns the entries of a directory, sorted by name, without ignored files or sockets.
  std::vector<TreeFile> list(const std::string& directory) const;
  // Returns the path with all links resolved, even if the last part is a link; missing parts are kept. Throws Error if
  // there are too many links.
  std::string resolve(const std::string& path) const;
  // Like resolve(), but does not resolve the last part.
  std::string resolve_parent(const std::string& path) const;
  // Opens a regular file. Throws Error if a context's file no longer matches `stamp`.
  Fd open(const std::string& path, const FileStamp& stamp) const;
  // Reads a small regular file, following links; nullopt if the file does not exist. Throws Error if it is larger than
  // 8 MiB.
  std::optional<std::string> read(const std::string& path) const;

  const std::string& name() const { return name_; }  // the directory's name, for messages

 private:
  Fd open_directory(const std::string& path) const;
  TreeFile describe(int directory, const std::string& name, const std::string& path) const;
  bool is_there(const TreeFile& file) const;

  std::string name_;
  Kind kind_;
  IgnoreFile ignore_;
  Fd root_;
};

}  // namespace adaptdl::image
