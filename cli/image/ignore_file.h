// Which files of a build's context are not part of it: .dockerignore, with the patterns of moby. The last pattern that
// matches a path, or a directory above it, decides; one with '!' takes back.
//
// Threading: a value; a const one may be used by several threads at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "image/glob.h"

namespace adaptdl::image {

class IgnoreFile {
 public:
  IgnoreFile() = default;  // ignores nothing
  // Throws Error that names `name`, the line and the pattern.
  static IgnoreFile parse(std::string_view text, const std::string& name);
  // The one of a build: <Dockerfile>.dockerignore beside the Dockerfile if there is that, else the context's
  // .dockerignore, else none. Throws Error.
  static IgnoreFile of_build(const std::filesystem::path& context, const std::filesystem::path& dockerfile);
  // Patterns from elsewhere (COPY --exclude). Throws Error that quotes the pattern.
  static IgnoreFile of_patterns(const std::vector<std::string>& patterns);

  bool empty() const { return patterns_.empty(); }
  // A path from the context's root, without a slash at either end and without "." and "..".
  bool ignores(std::string_view path) const;
  // Whether a directory and all that is below it are ignored, so that nobody needs to look into it. A directory that is
  // ignored, but has something below that '!' may take back, is not skipped: it is there if any of that is.
  bool skips_directory(std::string_view path) const;

 private:
  struct Pattern {
    Glob glob;
    bool taken_back = false;
  };
  void add(std::string_view line);
  std::vector<Pattern> patterns_;
};

}  // namespace adaptdl::image
