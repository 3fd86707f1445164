// The files of a directory that COPY takes from: a build's context without what is ignored, or the files of a stage.
//
// Nothing outside the directory is ever looked at: links are resolved as if it were the root, and a directory that
// becomes a link meanwhile is not followed.
// Threading: a const one may be used by several threads at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "image/entry.h"
#include "image/ignore_file.h"
#include "socket.h"

namespace adaptdl::image {

// What tells that a file has been changed.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t modified = 0, changed = 0;  // in nanoseconds
  bool operator==(const FileStamp&) const = default;
};

struct TreeFile {
  Entry entry;  // its path is the one in the tree
  FileStamp stamp;
  std::uint64_t links = 1;
};

class FileTree {
 public:
  // A context's files belong to root and have no attributes, whoever has checked them out; a stage's are as they are.
  enum class Kind { kContext, kStage };
  // Throws Error if it is no directory, or cannot be read.
  FileTree(const std::filesystem::path& root, Kind kind, IgnoreFile ignore = {});

  // Paths are from the root, "" is the root itself. A link is not followed, in the middle neither: then there is none.
  // Throws Error that names the path.
  std::optional<TreeFile> find(const std::string& path) const;
  // What is in a directory, sorted by name, without what is ignored, and without sockets.
  std::vector<TreeFile> list(const std::string& directory) const;
  // With all links followed, also the last; what is missing stays. Throws Error for too many links.
  std::string resolve(const std::string& path) const;
  // As resolve(), but the last part is left as it is.
  std::string resolve_parent(const std::string& path) const;
  // A regular file. Throws Error if it is not what `stamp` says any more.
  net::Fd open(const std::string& path, const FileStamp& stamp) const;
  // All of a small regular file, its links followed; null if there is none. Throws Error if it is over 8 MiB.
  std::optional<std::string> read(const std::string& path) const;

  const std::string& name() const { return name_; }  // of its directory, for messages

 private:
  net::Fd open_directory(const std::string& path) const;
  TreeFile describe(int directory, const std::string& name, const std::string& path) const;
  bool is_there(const TreeFile& file) const;

  std::string name_;
  Kind kind_;
  IgnoreFile ignore_;
  net::Fd root_;
};

}  // namespace adaptdl::image
