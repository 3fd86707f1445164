// A directory that things are made in by their paths from it, and that nothing leads out of: a link in it is followed
// as if the directory were the root of all files.
//
// Threading: belongs to one thread. Errors name the path in the tree.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "image/entry.h"
#include "socket.h"

namespace adaptdl::image {

// The directory a path is in, and its name there.
struct PathParts {
  std::string directory, name;
};
PathParts split_path(const std::string& path);

class RootedTree {
 public:
  // How a directory looks that is made because something in it is; a link: what it leads to is that directory.
  using Unsaid = std::function<Entry(const std::string& path)>;
  RootedTree(net::Fd root, Unsaid unsaid);

  // Makes an entry, in place of what is there; a directory stays. What it replaces is gone with all in it. False: it is
  // a device, and may not be made. Throws Error.
  bool make(const Entry& entry, const Content& content);
  // That of the layers below nothing is seen at a path, or in a directory, in overlayfs' own form.
  void whiteout(const std::string& path);
  void opaque(const std::string& directory);
  // Gives the directories the times of their entries, which what was made in them has changed.
  void finish();

 private:
  int parent_of(const std::string& directory, const std::string& path);
  net::Fd open_directory(const std::string& path, int flags);
  net::Fd make_parents(const std::string& directory, int links = 0);
  void clear(int parent, const PathParts& parts, const std::string& path);
  void make_directory(int parent, const PathParts& parts, const Entry& entry);
  void make_file(int parent, const PathParts& parts, const Entry& entry, const Content& content);
  void make_hard_link(int parent, const PathParts& parts, const Entry& entry);
  bool make_node(int parent, const PathParts& parts, const Entry& entry);
  void make_opaque(int directory, const std::string& path);

  const net::Fd root_;
  const Unsaid unsaid_;
  std::string last_directory_;  // the directory that was worked in last, and it, open
  net::Fd last_;
  std::map<std::string, std::int64_t> directory_times_;
};

}  // namespace adaptdl::image
