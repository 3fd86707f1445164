#include "image/build/stage_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace adaptdl::image {
namespace {

// Names in the root directory of at least one distribution, some of which may be links there.
constexpr std::array<std::string_view, 28> kRoots{"afs", "bin",     "boot",  "dev",    "efi",        "etc",   "home",
                                                  "lib", "lib32",   "lib64", "libx32", "lost+found", "media", "mnt",
                                                  "nix", "opt",     "proc",  "root",   "run",        "sbin",  "srv",
                                                  "sys", "sysroot", "tmp",   "ostree", "gnu",        "usr",   "var"};
// Paths that are directories, not links, in every common distribution that has them. If a base image lacks one, the
// program that unpacks the built image creates it.
constexpr std::array<std::string_view, 21> kDirectories{"etc",
                                                        "home",
                                                        "mnt",
                                                        "opt",
                                                        "root",
                                                        "srv",
                                                        "tmp",
                                                        "usr",
                                                        "usr/bin",
                                                        "usr/lib",
                                                        "usr/local",
                                                        "usr/local/bin",
                                                        "usr/local/lib",
                                                        "usr/local/sbin",
                                                        "usr/local/share",
                                                        "usr/sbin",
                                                        "usr/share",
                                                        "usr/src",
                                                        "var",
                                                        "var/lib",
                                                        "var/cache"};
// Directories in which distributions install nothing, so their entries were created for the image.
constexpr std::array<std::string_view, 6> kPlacesOfOthers{"mnt",     "opt",           "srv",
                                                          "usr/src", "usr/local/bin", "usr/local/sbin"};

bool contains(const auto& list, std::string_view path) {
  return std::find(list.begin(), list.end(), path) != list.end();
}

// Returns the shortest prefix of `path` that no distribution contains, so that an image with this prefix must have
// created it: "app" for "app/x", "opt/x" for "opt/x/y"; "" if a distribution may contain `path`.
std::string own_place(const std::string& path) {
  const std::string root = path.substr(0, path.find('/'));
  if (!contains(kRoots, root)) return root;
  for (const std::string_view place : kPlacesOfOthers)
    if (path.size() > place.size() + 1 && path.starts_with(place) && path[place.size()] == '/')
      return path.substr(0, path.find('/', place.size() + 1));
  return "";
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool text_mentions(const std::string& text, const std::string& path) {
  const std::string place = own_place(path), name = place.substr(place.rfind('/') + 1);
  if (place.empty()) return true;
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || !is_word(text[at - 1]),
               ends = at + name.size() == text.size() || !is_word(text[at + name.size()]);
    // The text mentions programs by name, and other entries by path.
    const bool by_name = place.starts_with("usr/local/");
    if (begins && ends && (by_name || (at > 0 && text[at - 1] == '/'))) return true;
  }
  return false;
}

PathKind StageFiles::find(const std::string& path) const {
  if (path.empty() || directories_.contains(path) || merged_.contains(path)) return PathKind::kDirectory;
  if (links_.contains(path)) return PathKind::kUnknown;  // the link's target is unknown
  if (files_.contains(path)) return PathKind::kOther;
  for (std::size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0;
       slash = path.rfind('/', slash - 1)) {
    const std::string above = path.substr(0, slash);
    if (links_.contains(above)) return PathKind::kUnknown;
    if (directories_.contains(above) || files_.contains(above)) return PathKind::kMissing;
  }
  return find_below(path);
}

PathKind StageFiles::find_below(const std::string& path) const {
  if (below_ == Below::kNothing) return PathKind::kMissing;
  if (below_ == Below::kUnknown) return PathKind::kUnknown;
  if (contains(kDirectories, path)) return PathKind::kDirectory;
  return own_place(path).empty() || mentions_(path) ? PathKind::kUnknown : PathKind::kMissing;
}

void StageFiles::begin_unread(std::function<bool(const std::string&)> mentions) {
  *this = {};
  below_ = Below::kUnread;
  mentions_ = std::move(mentions);
}

void StageFiles::forget() {
  *this = {};
  below_ = Below::kUnknown;
}

void StageFiles::add(const CreatedPaths& created) {
  // An archive may lack entries for the directories above its files. Such a directory replaces a file of the same name.
  for (const auto* paths : {&created.directories, &created.merged, &created.links, &created.files})
    for (const std::string& path : *paths)
      for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        const std::string above = path.substr(0, slash);
        if (files_.erase(above) > 0 || find(above) == PathKind::kMissing) directories_.insert(above);
      }
  // Even after a command, when older entries may be gone, the entries that a step creates are known to exist.
  directories_.insert(created.directories.begin(), created.directories.end());
  for (const std::string& path : created.merged) {
    const bool is_new = find(path) == PathKind::kMissing;
    (is_new ? directories_ : merged_).insert(path);
    files_.erase(path);
  }
  links_.insert(created.links.begin(), created.links.end());
  files_.insert(created.files.begin(), created.files.end());
}

}  // namespace adaptdl::image
