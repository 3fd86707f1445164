// Decides which files are left out of a build context: .dockerignore, with moby's patterns. The last pattern that
// matches a path, or a directory above it, decides; a pattern with '!' includes it again.
//
// Threading: const methods may be called from several threads at once.
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
  // Throws Error with `name`, the line number and the pattern.
  static IgnoreFile parse(std::string_view text, const std::string& name);
  // Reads the ignore file of a build: <Dockerfile>.dockerignore beside the Dockerfile if it exists, else .dockerignore
  // in the context; without either, nothing is ignored. Throws Error.
  static IgnoreFile of_build(const std::filesystem::path& context, const std::filesystem::path& dockerfile);
  // Creates it from other patterns (COPY --exclude). Throws Error that quotes the pattern.
  static IgnoreFile of_patterns(const std::vector<std::string>& patterns);

  bool empty() const { return patterns_.empty(); }
  // `path` is relative to the context's root, without a slash at either end and without "." and "..".
  bool ignores(std::string_view path) const;
  // Returns whether a directory and everything below it are ignored, so that it need not be read. An ignored directory
  // is not skipped if '!' may include something below it; it is in the context if any such file exists.
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
