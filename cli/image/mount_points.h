// Mount points in a step's root, and the removal of those that were created for the step. They are removed from outside
// the sandbox, in the overlay's upper directory: the command may have moved or replaced any of them.
#pragma once

#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "image/entry.h"
#include "image/open_rooted.h"

namespace adaptdl::image {

// A path in a root, resolved and opened with O_PATH.
struct FoundPath {
  net::Fd file;
  std::string path;  // relative to the root, without links; "" is the root
};

// Resolves `path` in the directory `root`, following the root's own links, and creates what is missing: a directory or
// an empty file. Appends each created path to `made`; with `keep_times`, the parent directory keeps its times. On
// failure `file` is empty and errno is set: ENOTDIR or EISDIR if the path is of the other kind, ELOOP for links of
// /proc. No other process may change the root meanwhile.
FoundPath find_or_make(int root, const std::string& path, bool directory, std::vector<std::string>& made,
                       bool keep_times);

// Records the mount points that were created, after everything is mounted and before the command starts, and removes
// them after everything is unmounted.
class MountTraces {
 public:
  // Records those in the root's upper directory, and the directories that the overlay copied up because of them.
  MountTraces(net::Fd upper, const std::vector<std::string>& made);
  // Records those in another directory, such as a cache mount's.
  static MountTraces in_directory(net::Fd directory, const std::vector<std::string>& made);
  // Keeps what the command has filled or changed. Parent directories keep their times.
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
  std::map<std::string, Trace> traces_;  // by their paths relative to it
};

}  // namespace adaptdl::image
