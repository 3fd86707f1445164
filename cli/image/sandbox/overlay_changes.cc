#include "image/sandbox/overlay_changes.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/base/open_rooted.h"

namespace adaptdl::image {
namespace {

[[noreturn]] void fail_change(const std::string& path) {
  const char* why = std::strerror(errno);
  throw Error(fmt::format("cannot read '/{}': {}", one_line(path, 300), why));
}

class Walk {
 public:
  Walk(const std::filesystem::path& upper, LayerWriter& layer, const ChangesOptions& options)
      : root_(::open(upper.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), layer_(layer), options_(options) {
    if (!root_) throw Error(fmt::format("cannot read '{}': {}", upper.string(), std::strerror(errno)));
  }

  // Adds the contents of a directory, recursively. The directory's descriptor is closed during the recursion, since a
  // tree may be deeper than the limit on open files.
  void directory(const std::string& path) {
    Fd fd = open(path, O_RDONLY | O_DIRECTORY);
    if (is_opaque(fd.get())) layer_.opaque(path);
    for (const std::string& name : names(fd.get(), path)) {
      const std::string inside = path.empty() ? name : fmt::format("{}/{}", path, name);
      if (options_.skip.contains(inside)) continue;
      if (!fd) fd = open(path, O_RDONLY | O_DIRECTORY);
      if (!take(fd.get(), name, inside)) continue;
      fd.reset();
      directory(inside);
    }
  }

 private:
  Fd open(const std::string& path, int flags) {
    Fd fd = open_rooted(root_.get(), path, flags, Links::kRefused);
    if (!fd) fail_change(path);
    return fd;
  }

  static bool is_opaque(int directory) {
    for (const char* name : {kOverlayOpaque, "trusted.overlay.opaque"}) {
      char value = 0;
      if (::fgetxattr(directory, name, &value, 1) == 1 && value == 'y') return true;
    }
    return false;
  }

  static std::vector<std::string> names(int directory, const std::string& path) {
    const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
    if (!listing) fail_change(path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(listing.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    if (errno != 0) fail_change(path);
    std::sort(names.begin(), names.end());
    return names;
  }

  // Returns true for a directory whose contents must be added.
  bool take(int directory, const std::string& name, const std::string& path) {
    struct stat info {};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) fail_change(path);
    if (S_ISSOCK(info.st_mode)) return false;
    if (S_ISCHR(info.st_mode) && info.st_rdev == 0) {
      layer_.whiteout(path);
      return false;
    }
    Entry entry = read_entry(directory, name, path);
    if (!S_ISDIR(info.st_mode) && info.st_nlink > 1) {
      const auto [first, is_first] = first_names_.try_emplace({info.st_dev, info.st_ino}, path);
      if (!is_first) {
        entry.type = Entry::Type::kHardLink;
        entry.link = first->second;
        entry.size = 0;
        entry.xattrs.clear();
      }
    }
    if (entry.type != Entry::Type::kFile) {
      layer_.add(entry);
      return entry.type == Entry::Type::kDirectory;
    }
    const Fd file(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file) fail_change(path);
    layer_.add(entry, read_content(file.get(), path));
    return false;
  }

  const Fd root_;
  LayerWriter& layer_;
  const ChangesOptions& options_;
  std::map<std::pair<dev_t, ino_t>, std::string> first_names_;  // for files with several links
};

}  // namespace

std::size_t add_overlay_changes(const std::filesystem::path& upper, LayerWriter& layer, const ChangesOptions& options) {
  const std::size_t before = layer.entries();
  Walk(upper, layer, options).directory("");
  return layer.entries() - before;
}

}  // namespace adaptdl::image
