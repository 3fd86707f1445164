// What is mounted in a step's root, and the files and directories that were made only to mount it on: afterwards they
// are gone, and the directories that they were in are as before.
//
// Threading and lifetime: used by one thread of a process whose root is the step's, from before the command to after
// its end.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include "image/entry.h"
#include "socket.h"

namespace adaptdl::image {

class MountPoints {
 public:
  // `upper` is the root's upper directory.
  explicit MountPoints(net::Fd upper) : upper_(std::move(upper)) {}

  // Finds what a target is, through the root's links, and makes what is missing of it: a directory, or an empty file.
  // Returns its path without links. Throws Error that names the target.
  std::string prepare(const std::string& target, bool directory);
  // Something was mounted at such a path.
  void mounted(const std::string& path) { made_.push_back({path, Made::kMount}); }

  // All is mounted: what is in the upper directory now is there only because of that.
  void complete();
  // Unmounts all, the last first, and removes what was made, unless something is in it.
  void remove();

 private:
  enum class Made { kMount, kFile, kDirectory };
  struct Step {
    std::string path;
    Made made;
  };
  struct Copy {
    struct stat status;
    std::map<std::string, std::string> xattrs;
  };

  void make(const std::string& path, bool directory);
  void note_copies(int directory, const std::string& path);
  void remove_copies();

  net::Fd upper_;
  std::vector<Step> made_;
  std::map<std::string, Copy> copies_;  // directories of the upper directory, by their paths in it
};

}  // namespace adaptdl::image
