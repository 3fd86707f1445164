#include "image/layer/rooted_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/base/clean_path.h"
#include "image/base/open_rooted.h"
#include "image/layer/unpack.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kFileBuffer = std::size_t{256} << 10;
constexpr std::size_t kHole = 4096;      // a run of this many zeros becomes a hole
constexpr int kMaxDirectoryLinks = 40;   // the kernel's limit on links in a path

[[noreturn]] void fail_tree(std::string_view what, std::string_view path) {
  const char* why = std::strerror(errno);
  throw Error(fmt::format("cannot {} '{}': {}", what, one_line(path, 200), why));
}

bool is_whiteout(const struct stat& info) { return S_ISCHR(info.st_mode) && info.st_rdev == ::makedev(0, 0); }

// The system calls for extended attributes have no *at() variants.
std::string proc_path(int directory, const std::string& name) {
  return fmt::format("/proc/self/fd/{}/{}", directory, name);
}

void set_xattrs(int directory, const std::string& name, const Entry& entry) {
  const std::string file = entry.xattrs.empty() ? "" : proc_path(directory, name);
  for (const auto& [key, value] : entry.xattrs) {
    // A layer must not set attributes that belong to the overlay or to this machine's security modules.
    const bool usual = key.starts_with("user.") || key.starts_with("system.posix_acl_") || key == "security.capability";
    if (!usual || key.starts_with(kOverlayXattrPrefix)) continue;
    if (::lsetxattr(file.c_str(), key.c_str(), value.data(), value.size(), 0) == 0) continue;
    // Attributes that this file system or user namespace cannot store are still in the layer's blob.
    if (errno != ENOTSUP && errno != EPERM && errno != EACCES && errno != EINVAL)
      fail_tree(fmt::format("set the extended attribute '{}' of", one_line(key, 100)), entry.path);
  }
}

void own(int directory, const std::string& name, const Entry& entry) {
  if (::fchownat(directory, name.c_str(), entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW) == 0) return;
  if (errno == EPERM || errno == EINVAL)
    throw Error(
        fmt::format("cannot change the owner of '{}' to {}:{}; run as root, or assign this user subordinate IDs in "
                    "/etc/subuid and /etc/subgid (usermod --add-subuids 100000-165535 "
                    "--add-subgids 100000-165535 USER)",
                    one_line(entry.path, 200), entry.uid, entry.gid));
  fail_tree("change the owner of", entry.path);
}

bool is_zero(const char* data, std::size_t size) {
  return size == 0 || (*data == '\0' && std::memcmp(data, data + 1, size - 1) == 0);
}

void write_at(int file, const char* data, std::size_t size, std::uint64_t offset, const Entry& entry) {
  while (size > 0) {
    const ssize_t count = ::pwrite(file, data, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_tree("write", entry.path);
    data += count;
    size -= static_cast<std::size_t>(count);
    offset += static_cast<std::uint64_t>(count);
  }
}

// Zeros are not written, so that sparse files stay sparse.
void write_content(int file, const Entry& entry, const Content& content) {
  std::vector<char> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(kFileBuffer, entry.size)));
  std::uint64_t offset = 0, written = 0;
  while (offset < entry.size) {
    std::size_t size = 0;
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), entry.size - offset));
    while (size < wanted) {
      const std::size_t count = content(buffer.data() + size, wanted - size);
      if (count == 0) throw Error(fmt::format("'{}' is truncated", one_line(entry.path, 200)));
      size += count;
    }
    for (std::size_t at = 0; at < size;) {
      std::size_t end = at;
      while (end < size && !is_zero(&buffer[end], std::min(kHole, size - end))) end = std::min(size, end + kHole);
      if (end > at) {
        write_at(file, &buffer[at], end - at, offset + at, entry);
        written = offset + end;
      }
      at = end;
      while (at < size && is_zero(&buffer[at], std::min(kHole, size - at))) at = std::min(size, at + kHole);
    }
    offset += size;
  }
  if (written < entry.size && ::ftruncate(file, static_cast<off_t>(entry.size)) != 0) fail_tree("write", entry.path);
}

// Sets the attributes of a link itself, not of its target.
void set_attributes(int directory, const std::string& name, const Entry& entry, bool with_time) {
  own(directory, name, entry);  // clears set-id bits and capabilities
  if (entry.type != Entry::Type::kSymlink && ::fchmodat(directory, name.c_str(), entry.mode & 07777, 0) != 0)
    fail_tree("change the mode of", entry.path);
  set_xattrs(directory, name, entry);
  const timespec times[2] = {{entry.mtime, 0}, {entry.mtime, 0}};
  if (with_time && ::utimensat(directory, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
    fail_tree("change the time of", entry.path);
}

}  // namespace

PathParts split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

RootedTree::RootedTree(Fd root, ImplicitEntry implicit_entry)
    : root_(std::move(root)), implicit_entry_(std::move(implicit_entry)) {}

Fd RootedTree::open_directory(const std::string& path, int flags) {
  return open_rooted(root_.get(), path, O_RDONLY | O_DIRECTORY | flags, Links::kInRoot);
}

// Returns the directory of `path`, and creates it if necessary. The descriptor stays open until the next call.
int RootedTree::parent_of(const std::string& directory, const std::string& path) {
  if (last_ && last_directory_ == directory) return last_.get();
  Fd found = open_directory(directory, 0);
  if (!found && (errno == ENOENT || errno == ENOTDIR)) found = make_parents(directory);
  if (!found) fail_tree("create", path);
  last_directory_ = directory;
  last_ = std::move(found);
  return last_.get();
}

Fd RootedTree::make_parents(const std::string& directory, int links) {
  if (links > kMaxDirectoryLinks)
    throw Error(fmt::format("cannot resolve '{}': too many levels of symbolic links", one_line(directory, 200)));
  Fd parent = open_directory("", 0);
  // Continues in the directory that the link at `path` leads to.
  const auto by_way_of = [&](const std::string& path, const std::string& link) {
    const std::string to =
        clean_path(link.starts_with('/') ? link : fmt::format("/{}/{}", split_path(path).directory, link));
    return make_parents(clean_path(to + directory.substr(path.size())).substr(1), links + 1);
  };
  for (std::size_t at = 0; at < directory.size();) {
    const std::size_t slash = std::min(directory.find('/', at), directory.size());
    const std::string path = directory.substr(0, slash), name = directory.substr(at, slash - at);
    at = slash + 1;
    struct stat info {};
    const bool there = ::fstatat(parent.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && S_ISLNK(info.st_mode) && open_directory(path, 0))
      return by_way_of(path, read_entry(parent.get(), name, path).link);
    Fd next = open_directory(path, O_NOFOLLOW);
    if (next) {
      parent = std::move(next);
      continue;
    }
    const bool hides = there && is_whiteout(info);
    if (hides) ::unlinkat(parent.get(), name.c_str(), 0);
    if (there && !hides) throw Error(fmt::format("'{}' contains entries but is not a directory", one_line(path, 200)));
    Entry looks = implicit_entry_ ? implicit_entry_(path) : Entry{};
    if (looks.type == Entry::Type::kSymlink && !hides) {
      if (::symlinkat(looks.link.c_str(), parent.get(), name.c_str()) != 0) fail_tree("create", path);
      set_attributes(parent.get(), name, looks, true);
      return by_way_of(path, looks.link);
    }
    if (::mkdirat(parent.get(), name.c_str(), 0755) != 0) fail_tree("create", path);
    next = open_directory(path, O_NOFOLLOW);
    if (!next) fail_tree("open", path);
    if (looks.type == Entry::Type::kSymlink) looks = Entry{.mode = 0755};
    looks.path = path;
    looks.type = Entry::Type::kDirectory;
    set_attributes(parent.get(), name, looks, false);
    directory_times_[path] = looks.mtime;
    if (hides) make_opaque(next.get(), path);
    parent = std::move(next);
  }
  return parent;
}

void RootedTree::clear(int parent, const PathParts& parts, const std::string& path) {
  if (::unlinkat(parent, parts.name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR) fail_tree("replace", path);
  directory_times_.erase(path);
  remove_tree(proc_path(parent, parts.name));
}

bool RootedTree::make(const Entry& entry, const Content& content) {
  if (entry.path.empty()) {
    set_attributes(root_.get(), ".", entry, false);
    directory_times_[""] = entry.mtime;
    return true;
  }
  const PathParts parts = split_path(entry.path);
  const int parent = parent_of(parts.directory, entry.path);
  if (entry.type == Entry::Type::kDirectory) {
    make_directory(parent, parts, entry);
    return true;
  }
  if (entry.type == Entry::Type::kHardLink) {
    make_hard_link(parent, parts, entry);
    return true;
  }
  clear(parent, parts, entry.path);
  if (entry.type == Entry::Type::kFile) {
    make_file(parent, parts, entry, content);
  } else if (entry.type == Entry::Type::kSymlink) {
    if (::symlinkat(entry.link.c_str(), parent, parts.name.c_str()) != 0) fail_tree("create the link", entry.path);
  } else if (!make_node(parent, parts, entry)) {
    return false;
  }
  set_attributes(parent, parts.name, entry, true);
  return true;
}

void RootedTree::make_directory(int parent, const PathParts& parts, const Entry& entry) {
  struct stat info {};
  const bool there = ::fstatat(parent, parts.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there || !S_ISDIR(info.st_mode)) {
    clear(parent, parts, entry.path);
    if (::mkdirat(parent, parts.name.c_str(), 0700) != 0) fail_tree("create the directory", entry.path);
    // The whiteout hid a directory in a lower layer. The contents of that directory must stay hidden.
    if (there && is_whiteout(info)) opaque(entry.path);
  }
  set_attributes(parent, parts.name, entry, false);
  directory_times_[entry.path] = entry.mtime;
}

void RootedTree::make_file(int parent, const PathParts& parts, const Entry& entry, const Content& content) {
  const Fd file(::openat(parent, parts.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_tree("create", entry.path);
  if (entry.size > 0) write_content(file.get(), entry, content);
}

void RootedTree::make_hard_link(int parent, const PathParts& parts, const Entry& entry) {
  if (entry.link == entry.path) return;
  const PathParts target = split_path(entry.link);
  const Fd from = open_directory(target.directory, 0);
  struct stat info {};
  if (!from || target.name.empty() || ::fstatat(from.get(), target.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      S_ISDIR(info.st_mode) || is_whiteout(info))
    throw Error(fmt::format("'{}' is a hard link to '{}', which is not an earlier file", one_line(entry.path, 200),
                            one_line(entry.link, 200)));
  clear(parent, parts, entry.path);
  if (::linkat(from.get(), target.name.c_str(), parent, parts.name.c_str(), 0) != 0)
    fail_tree("create the link", entry.path);
}

bool RootedTree::make_node(int parent, const PathParts& parts, const Entry& entry) {
  const mode_t kind = entry.type == Entry::Type::kFifo              ? S_IFIFO
                      : entry.type == Entry::Type::kCharacterDevice ? S_IFCHR
                      : entry.type == Entry::Type::kBlockDevice     ? S_IFBLK
                                                                    : S_IFSOCK;
  const dev_t device = kind == S_IFIFO || kind == S_IFSOCK ? 0 : ::makedev(entry.device_major, entry.device_minor);
  if (::mknodat(parent, parts.name.c_str(), kind | 0600, device) == 0) return true;
  if (errno != EPERM || kind == S_IFIFO || kind == S_IFSOCK) fail_tree("create", entry.path);
  return false;
}

void RootedTree::whiteout(const std::string& path) {
  const PathParts parts = split_path(path);
  const int parent = parent_of(parts.directory, path);
  struct stat info {};
  // The layer's own entry is kept, but the contents of lower layers are hidden.
  if (::fstatat(parent, parts.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(info.st_mode)) opaque(path);
    return;
  }
  if (::mknodat(parent, parts.name.c_str(), S_IFCHR, ::makedev(0, 0)) != 0) fail_tree("create the whiteout of", path);
}

// Opens its own descriptor, since a caller may be using the descriptor that parent_of() keeps.
void RootedTree::opaque(const std::string& directory) {
  Fd found = open_directory(directory, 0);
  if (!found && (errno == ENOENT || errno == ENOTDIR)) found = make_parents(directory);
  if (!found) fail_tree("create", directory);
  make_opaque(found.get(), directory);
}

void RootedTree::make_opaque(int directory, const std::string& path) {
  if (::fsetxattr(directory, kOverlayOpaque, "y", 1, 0) == 0) return;
  if (errno == ENOTSUP)
    throw Error(
        "the file system of the build cache does not support extended attributes; set ADAPTDL_BUILD_CACHE to a "
        "directory on a file system that does, such as ext4, xfs or btrfs");
  fail_tree("mark as opaque", path);
}

void RootedTree::finish() {
  last_.reset();
  for (const auto& [path, time] : directory_times_) {
    const Fd directory = open_directory(path, O_NOFOLLOW);
    const timespec times[2] = {{time, 0}, {time, 0}};
    if (directory && ::futimens(directory.get(), times) != 0) fail_tree("change the time of", path);
  }
}

}  // namespace adaptdl::image
