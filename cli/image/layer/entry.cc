#include "image/layer/entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace {

[[noreturn]] void fail_entry(std::string_view what, const std::string& path) {
  const char* why = std::strerror(errno);
  throw Error(fmt::format("cannot read {}'/{}': {}", what, one_line(path, 300), why));
}

Entry::Type entry_type(mode_t mode, const std::string& path) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return Entry::Type::kFile;
    case S_IFDIR:
      return Entry::Type::kDirectory;
    case S_IFLNK:
      return Entry::Type::kSymlink;
    case S_IFIFO:
      return Entry::Type::kFifo;
    case S_IFCHR:
      return Entry::Type::kCharacterDevice;
    case S_IFBLK:
      return Entry::Type::kBlockDevice;
    case S_IFSOCK:
      return Entry::Type::kSocket;
  }
  throw Error(fmt::format("'/{}' has a file type that a layer cannot contain", one_line(path, 300)));
}

// Repeats listxattr or getxattr with a larger buffer if the first buffer is too small.
template <typename Call>
bool read_growing(std::string& bytes, Call call) {
  bytes.resize(256);
  for (;;) {
    const ssize_t size = call(bytes.data(), bytes.size());
    if (size >= 0) {
      bytes.resize(static_cast<std::size_t>(size));
      return true;
    }
    if (errno != ERANGE || bytes.size() >= (std::size_t{64} << 10)) return false;
    bytes.resize(std::size_t{64} << 10);
  }
}

bool is_kept(std::string_view name) {
  return name == "security.capability" || (name.starts_with("user.") && !name.starts_with(kOverlayXattrPrefix));
}

void read_xattrs(const std::string& file, Entry& entry) {
  std::string names, value;
  if (!read_growing(names, [&](char* data, std::size_t size) { return ::llistxattr(file.c_str(), data, size); })) {
    if (errno == ENOTSUP || errno == ENOENT) return;
    fail_entry("the extended attributes of ", entry.path);
  }
  for (std::size_t at = 0; at < names.size();) {
    const std::string name(names.c_str() + at);
    at += name.size() + 1;
    if (!is_kept(name)) continue;
    if (!read_growing(
            value, [&](char* data, std::size_t size) { return ::lgetxattr(file.c_str(), name.c_str(), data, size); })) {
      if (errno == ENODATA) continue;
      fail_entry("the extended attributes of ", entry.path);
    }
    entry.xattrs[name] = value;
  }
}

}  // namespace

Entry read_entry(int directory, const std::string& name, std::string path) {
  Entry entry;
  entry.path = std::move(path);
  struct stat info {};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) fail_entry("", entry.path);
  entry.type = entry_type(info.st_mode, entry.path);
  entry.mode = info.st_mode & 07777;
  entry.uid = info.st_uid;
  entry.gid = info.st_gid;
  entry.mtime = info.st_mtim.tv_sec;
  if (entry.type == Entry::Type::kFile) entry.size = static_cast<std::uint64_t>(info.st_size);
  if (entry.type == Entry::Type::kCharacterDevice || entry.type == Entry::Type::kBlockDevice) {
    entry.device_major = ::major(info.st_rdev);
    entry.device_minor = ::minor(info.st_rdev);
  }
  if (entry.type == Entry::Type::kSymlink) {
    entry.mode = 0777;
    entry.link.resize(4096);
    const ssize_t size = ::readlinkat(directory, name.c_str(), entry.link.data(), entry.link.size());
    if (size < 0) fail_entry("", entry.path);
    entry.link.resize(static_cast<std::size_t>(size));
  }
  // The system calls for extended attributes have no *at() variants.
  read_xattrs(fmt::format("/proc/self/fd/{}/{}", directory, name), entry);
  return entry;
}

Content read_content(int file, std::string path) {
  return [file, path = std::move(path)](char* data, std::size_t size) -> std::size_t {
    for (;;) {
      const ssize_t count = ::read(file, data, size);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) fail_entry("", path);
    }
  };
}

std::string inside_root(std::string_view name) {
  const auto fail_outside = [&](std::string_view why) {
    throw Error(fmt::format("'{}' {}", one_line(name, 200), why));
  };
  if (name.find('\0') != std::string_view::npos) fail_outside("contains a zero byte");
  std::string path;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    at = slash + 1;
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      if (!path.empty()) path += '/';
      path += part;
      continue;
    }
    if (path.empty()) fail_outside("leads outside the root directory");
    const std::size_t last = path.rfind('/');
    path.resize(last == std::string::npos ? 0 : last);
  }
  return path;
}

}  // namespace adaptdl::image
