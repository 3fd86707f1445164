// Creates entries in a directory by path, and never outside it: links are followed as if the directory were the file
// system's root.
//
// Errors name the path in the tree.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/fd.h"
#include "image/layer/entry.h"

namespace adaptdl::image {

// A path's directory, and the name in that directory.
struct PathParts {
  std::string directory, name;
};
PathParts split_path(const std::string& path);

class RootedTree {
 public:
  // Returns the attributes of a directory that is created only because it contains an entry, or of a link that is
  // created instead of the directory.
  using ImplicitEntry = std::function<Entry(const std::string& path)>;
  RootedTree(Fd root, ImplicitEntry implicit_entry);

  // Creates an entry, replacing any existing file or directory tree at its path; a directory entry keeps an existing
  // directory. Returns false for a device that the process may not create. Throws Error.
  bool make(const Entry& entry, const Content& content);
  // Hides a path, or a directory's contents, in the layers below, using overlayfs' own marks.
  void whiteout(const std::string& path);
  void opaque(const std::string& directory);
  // Restores the times of directories, which changed when entries were created in them.
  void finish();

 private:
  int parent_of(const std::string& directory, const std::string& path);
  Fd open_directory(const std::string& path, int flags);
  Fd make_parents(const std::string& directory, int links = 0);
  void clear(int parent, const PathParts& parts, const std::string& path);
  void make_directory(int parent, const PathParts& parts, const Entry& entry);
  void make_file(int parent, const PathParts& parts, const Entry& entry, const Content& content);
  void make_hard_link(int parent, const PathParts& parts, const Entry& entry);
  bool make_node(int parent, const PathParts& parts, const Entry& entry);
  void make_opaque(int directory, const std::string& path);

  const Fd root_;
  const ImplicitEntry implicit_entry_;
  std::string last_directory_;  // the directory that was used last, and its descriptor
  Fd last_;
  std::map<std::string, std::int64_t> directory_times_;
};

}  // namespace adaptdl::image
