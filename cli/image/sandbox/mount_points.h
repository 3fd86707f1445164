// Creates mount points in a step's root, and removes them after the step. They are removed from outside the sandbox, in
// the overlay's upper directory, since the command may have moved or replaced any of them.
#pragma once

#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "image/base/open_rooted.h"
#include "image/layer/entry.h"

namespace adaptdl::image {

// A path in a root, resolved and opened with O_PATH.
struct FoundPath {
  Fd file;
  std::string path;  // relative to the root, without links; "" is the root
};

// Resolves `path` in the directory `root`, following links in `path`, and creates missing parts. All created parts are
// directories, except that the last part is an empty file unless `directory` is true. Appends each created path to
// `made`; with `keep_times`, the parent directories keep their times. On failure `file` is empty and errno is set:
// ENOTDIR or EISDIR if the path has the wrong type, ELOOP for links in /proc. No other process may change the root
// during the call.
FoundPath find_or_make(int root, const std::string& path, bool directory, std::vector<std::string>& made,
                       bool keep_times);

// The mount points that were created. They must be recorded after everything is mounted and before the command starts,
// and removed after everything is unmounted.
class MountTraces {
 public:
  // Records the mount points in the root's upper directory, and the directories that the overlay copied up for them.
  MountTraces(Fd upper, const std::vector<std::string>& made);
  // Records the mount points in another directory, such as a cache mount's.
  static MountTraces in_directory(Fd directory, const std::vector<std::string>& made);
  // Removes the mount points, except those that the command has filled or changed. Parent directories keep their times.
  void remove();

 private:
  struct Trace {
    struct stat status {};
    std::map<std::string, std::string> xattrs;
    bool made = false;
  };
  explicit MountTraces(Fd top) : top_(std::move(top)) {}
  void note(int directory, const std::string& name, const std::string& path, bool made);
  void note_all(int directory, const std::string& path, const std::set<std::string>& made);

  Fd top_;
  std::map<std::string, Trace> traces_;  // keyed by path, relative to top_
};

}  // namespace adaptdl::image
