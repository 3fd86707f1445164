// What is known of a stage's files without a look at them, so that COPY can write its layer without the layers below.
//
// The rule for a base image whose layers nobody has looked at, as docs/images.md has it: the directories that every
// distribution has, as directories, are there (/etc, /usr/local/bin …); what is no distribution's (/app, /opt/x …)
// is not there unless the image's history or configuration speaks of it; of all else nothing is known.
//
// Threading: plain values.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace adaptdl::image {

enum class PathKind { kMissing, kDirectory, kLink, kOther, kUnknown };

class StageFiles {
 public:
  // Paths are without slashes at their ends. Nothing is there at first.
  PathKind find(const std::string& path) const;
  // The stage is built on an image nobody has looked at, of which `speaks_of` says whether it may have a path.
  void begin_unseen(std::function<bool(const std::string& path)> speaks_of);
  // Something has been run: nothing is known any more.
  void forget();
  // A step has made these directories, which were not there, and these links.
  void add(const std::vector<std::string>& directories, const std::vector<std::string>& links);

 private:
  enum class Below { kNothing, kUnseen, kUnknown };
  PathKind find_below(const std::string& path) const;

  Below below_ = Below::kNothing;
  std::function<bool(const std::string&)> speaks_of_;
  std::set<std::string> directories_, links_;
};

// Whether a history and configuration, as one text, has the path, or a home's name.
bool text_speaks_of(const std::string& text, const std::string& path);

}  // namespace adaptdl::image
