// Decides which files a build context excludes, according to .dockerignore, whose patterns use Moby's syntax. The last
// pattern that matches a path, or a directory above it, decides; a pattern with '!' includes the path again.
//
// Threading: const methods may be called from several threads at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "image/base/glob.h"

namespace adaptdl::image {

class IgnoreFile {
 public:
  IgnoreFile() = default;  // ignores nothing
  // Parses an ignore file. Throws an Error that states `name`, the line number and the pattern.
  static IgnoreFile parse(std::string_view text, const std::string& name);
  // Reads a build's ignore file: <Dockerfile>.dockerignore next to the Dockerfile if it exists, else .dockerignore in
  // the context. If neither exists, nothing is ignored. Throws Error.
  static IgnoreFile of_build(const std::filesystem::path& context, const std::filesystem::path& dockerfile);
  // Creates an IgnoreFile from the patterns in COPY --exclude. Throws an Error that quotes the pattern.
  static IgnoreFile of_patterns(const std::vector<std::string>& patterns);

  bool empty() const { return patterns_.empty(); }
  // `path` is relative to the context's root, without "." or ".." and without leading or trailing slashes.
  bool ignores(std::string_view path) const;
  // Returns whether a directory and everything below it are ignored, so that it need not be read. An ignored directory
  // is not skipped if a pattern with '!' may include a file below it; the directory is in the context if such a file
  // exists.
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
