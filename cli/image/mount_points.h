// The files and directories of a step's root that something is mounted on. Those that were made for that are removed
// afterwards, below the overlay, from outside: what the command left there is not to be trusted.
//
// Threading: each object belongs to one thread.
#pragma once

#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "image/entry.h"
#include "image/open_rooted.h"

namespace adaptdl::image {

// A path of a root, found and opened (O_PATH).
struct FoundPath {
  net::Fd file;
  std::string path;  // in the root, without links; "" is the root
};

// Finds what a path is in the open directory `root`, through the root's links, and makes what is missing of it: a
// directory, or an empty file. Each thing that was made is added to `made`, and with `keep_times` the directory that it
// is in keeps its own. On failure `file` is empty, and errno says why: ENOTDIR or EISDIR if something else is there,
// ELOOP also for links of /proc. REQUIRES: nobody else changes the root meanwhile.
FoundPath find_or_make(int root, const std::string& path, bool directory, std::vector<std::string>& made,
                       bool keep_times);

// What was made to mount something on, as it is in the root's upper directory when all is mounted and the command has
// not begun; and its removal when nothing is mounted any more.
class MountTraces {
 public:
  // Of the root's upper directory.
  MountTraces(net::Fd upper, const std::vector<std::string>& made);
  // Of another directory, as a cache mount's, where nothing but what was made is looked at.
  static MountTraces in_directory(net::Fd directory, const std::vector<std::string>& made);
  // What the command put something into, or changed, stays. Directories that were copied up only because of a mount
  // are removed too, and the directories above are as before.
  void remove();

 private:
  struct Trace {
    struct stat status {};
    std::map<std::string, std::string> xattrs;
    bool made = false;
  };
  explicit MountTraces(net::Fd top) : top_(std::move(top)) {}
  void note(int directory, const std::string& name, const std::string& path, bool made);
  void note_all(int directory, const std::string& path, const std::set<std::string>& made);

  net::Fd top_;
  std::map<std::string, Trace> traces_;  // by their paths in it
};

}  // namespace adaptdl::image
