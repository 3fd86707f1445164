// Tracks what is known about a stage's files without reading them, so that COPY can write a layer without reading the
// layers below.
//
// For a base image whose layers have not been read, docs/images.md defines the rule: the usual directories of
// distributions (/etc, /usr/local/bin …) are assumed to exist; paths that belong to no distribution (/app, /opt/x …)
// are assumed to be missing, unless the image's history or configuration mentions them; all other paths are unknown.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "image/layer/build_cache.h"

namespace adaptdl::image {

enum class PathKind { kMissing, kDirectory, kLink, kOther, kUnknown };

class StageFiles {
 public:
  // Paths have no leading or trailing slashes. Initially, no file exists.
  PathKind find(const std::string& path) const;
  // Starts with an image whose layers have not been read; `mentions` returns whether the image may contain a path.
  void begin_unread(std::function<bool(const std::string& path)> mentions);
  // Must be called after a command has been executed: all files become unknown.
  void forget();
  void add(const CreatedPaths& created);

 private:
  enum class Below { kNothing, kUnread, kUnknown };
  PathKind find_below(const std::string& path) const;

  Below below_ = Below::kNothing;
  std::function<bool(const std::string&)> mentions_;
  std::set<std::string> directories_, links_, files_;
  std::set<std::string> merged_;  // directories of which only some entries are known
};

// Returns whether a history and configuration, given as one text, mention the path; also true if a distribution may
// contain the path.
bool text_mentions(const std::string& text, const std::string& path);

}  // namespace adaptdl::image
