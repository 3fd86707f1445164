// Packs a project into a zip file, from which Ray creates the working directory of a job.
//
// Files with the same contents and modes produce the same package, whatever their dates are, so that a package need not
// be uploaded twice. Symbolic links to files are replaced with the files, because Ray does not restore links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace adaptdl::ray {

// A file that is added to the project's files.
struct PackageFile {
  std::string name;  // in the package
  std::filesystem::path source;
};

struct PackageOptions {
  std::filesystem::path project;   // empty: the package contains only `files`
  std::vector<PackageFile> files;  // they replace files of the project with the same name
  // Returns whether a file, or a directory with everything below it, is left out. `path` is relative to the project.
  std::function<bool(const std::string& path, bool directory)> excludes = [](const std::string&, bool) {
    return false;
  };
  std::function<void(const std::string&)> notice = [](const std::string&) {};  // receives one line per skipped entry
};

// A zip file in the directory for temporary files. The destructor removes the file.
class Package {
 public:
  // Throws Error if a file cannot be read, or if the zip file cannot be written.
  explicit Package(const PackageOptions& options);
  ~Package();
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::string& name() const { return name_; }  // contains a digest of the content
  std::uint64_t size() const { return size_; }       // bytes

 private:
  std::filesystem::path path_;
  std::string name_;
  std::uint64_t size_ = 0;
};

}  // namespace adaptdl::ray
