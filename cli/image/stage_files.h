// Tracks what is known about a stage's files without reading them, so that COPY can write a layer without those below.
//
// For a base image whose layers have not been read, docs/images.md gives the rule: directories that every distribution
// has (/etc, /usr/local/bin …) exist; paths that no distribution has (/app, /opt/x …) do not exist, unless the image's
// history or configuration mentions them; all others are unknown.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace adaptdl::image {

enum class PathKind { kMissing, kDirectory, kLink, kOther, kUnknown };

class StageFiles {
 public:
  // Paths have no slashes at their ends. Initially empty.
  PathKind find(const std::string& path) const;
  // Starts with an image whose layers have not been read; `speaks_of` returns whether it may have a path.
  void begin_unseen(std::function<bool(const std::string& path)> speaks_of);
  // A command has been executed, so all files become unknown.
  void forget();
  // Adds the directories, which did not exist, and the links that a step has created.
  void add(const std::vector<std::string>& directories, const std::vector<std::string>& links);

 private:
  enum class Below { kNothing, kUnseen, kUnknown };
  PathKind find_below(const std::string& path) const;

  Below below_ = Below::kNothing;
  std::function<bool(const std::string&)> speaks_of_;
  std::set<std::string> directories_, links_;
};

// Returns whether a history and configuration, given as one text, mention the path; true if a distribution may have it.
bool text_speaks_of(const std::string& text, const std::string& path);

}  // namespace adaptdl::image
