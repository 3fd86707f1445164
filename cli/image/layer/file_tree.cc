#include "image/layer/file_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/open_rooted.h"

namespace adaptdl::image {
namespace {

constexpr int kMaxTreeLinks = 255;
constexpr std::size_t kMaxReadSize = std::size_t{8} << 20;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

FileStamp stamp_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

Entry::Type file_type(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return Entry::Type::kDirectory;
    case S_IFLNK:
      return Entry::Type::kSymlink;
    case S_IFCHR:
      return Entry::Type::kCharacterDevice;
    case S_IFBLK:
      return Entry::Type::kBlockDevice;
    case S_IFREG:
      return Entry::Type::kFile;
    default:
      return Entry::Type::kFifo;
  }
}

std::string child_path(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

}  // namespace

FileTree::FileTree(const std::filesystem::path& root, Kind kind, IgnoreFile ignore)
    : name_(root.string()),
      kind_(kind),
      ignore_(std::move(ignore)),
      root_(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!root_) throw Error(one_line(fmt::format("cannot read the directory '{}': {}", name_, std::strerror(errno))));
}

Fd FileTree::open_directory(const std::string& path) const {
  Fd fd = open_rooted(root_.get(), path, O_RDONLY | O_DIRECTORY, Links::kRefused);
  if (!fd && errno == ENOSYS) throw Error("this kernel is too old to build images; Linux 5.6 or later is required");
  if (!fd && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
    throw Error(one_line(fmt::format("cannot read '{}/{}': {}", name_, path, std::strerror(errno))));
  return fd;
}

TreeFile FileTree::describe(int directory, const std::string& name, const std::string& path) const {
  const auto fail = [&] {
    throw Error(one_line(fmt::format("cannot read '{}/{}': {}", name_, path, std::strerror(errno))));
  };
  struct stat info {};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0) fail();
  TreeFile file{.entry = {}, .stamp = stamp_of(info), .links = info.st_nlink};
  if (kind_ == Kind::kStage) {
    file.entry = read_entry(directory, name.empty() ? "." : name, path);
    return file;
  }
  Entry& entry = file.entry;
  entry.path = path;
  entry.type = file_type(info.st_mode);
  entry.mode = info.st_mode & 07777;
  entry.mtime = info.st_mtim.tv_sec;
  if (entry.type == Entry::Type::kFile) entry.size = static_cast<std::uint64_t>(info.st_size);
  if (entry.type == Entry::Type::kSymlink) {
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(directory, name.c_str(), target, sizeof target);
    if (size < 0) fail();
    entry.link.assign(target, static_cast<std::size_t>(size));
    entry.mode = 0777;
  }
  if (entry.type == Entry::Type::kCharacterDevice || entry.type == Entry::Type::kBlockDevice) {
    entry.device_major = major(info.st_rdev);
    entry.device_minor = minor(info.st_rdev);
  }
  return file;
}

// An ignored directory is still in the tree if something below it is not ignored.
bool FileTree::is_there(const TreeFile& file) const {
  const std::string& path = file.entry.path;
  if (ignore_.empty() || path.empty() || !ignore_.ignores(path)) return true;
  return file.entry.type == Entry::Type::kDirectory && !ignore_.skips_directory(path) && !list(path).empty();
}

std::optional<TreeFile> FileTree::find(const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : path.substr(0, slash);
  const Fd fd = open_directory(directory);
  if (!fd) return {};
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  struct stat info {};
  if (::fstatat(fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 && errno == ENOENT) return {};
  TreeFile file = describe(fd.get(), name, path);
  if (S_ISSOCK(info.st_mode) || !is_there(file)) return {};
  return file;
}

std::vector<TreeFile> FileTree::list(const std::string& directory) const {
  Fd fd = open_directory(directory);
  if (!fd) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), ::closedir);
  std::vector<std::string> names;
  if (stream) errno = 0;  // readdir() sets errno only if it fails
  while (const dirent* each = stream ? ::readdir(stream.get()) : nullptr) {
    const std::string_view name = each->d_name;
    if (name != "." && name != ".." && each->d_type != DT_SOCK) names.emplace_back(name);
  }
  if (errno != 0) throw Error(one_line(fmt::format("cannot read '{}/{}': {}", name_, directory, std::strerror(errno))));
  std::sort(names.begin(), names.end());
  std::vector<TreeFile> files;
  for (const std::string& name : names) {
    const std::string path = child_path(directory, name);
    if (!ignore_.empty() && ignore_.skips_directory(path)) continue;
    TreeFile file = describe(fd.get(), name, path);
    if (is_there(file)) files.push_back(std::move(file));
  }
  return files;
}

std::string FileTree::resolve(const std::string& path) const {
  std::vector<std::string> rest = split(path, '/'), done;
  std::reverse(rest.begin(), rest.end());
  const auto text = [&] {
    std::string whole;
    for (const std::string& part : done) whole = child_path(whole, part);
    return whole;
  };
  for (int links = 0; !rest.empty();) {
    const std::string part = rest.back();
    rest.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!done.empty()) done.pop_back();
      continue;
    }
    const Fd fd = open_directory(text());
    done.push_back(part);
    char target[PATH_MAX];
    const ssize_t size = fd ? ::readlinkat(fd.get(), part.c_str(), target, sizeof target) : -1;
    if (size < 0) continue;
    if (++links > kMaxTreeLinks)
      throw Error(one_line(fmt::format("cannot resolve '{}/{}': too many levels of symbolic links", name_, path)));
    done.pop_back();
    if (target[0] == '/') done.clear();
    std::vector<std::string> parts = split(std::string_view(target, static_cast<std::size_t>(size)), '/');
    rest.insert(rest.end(), parts.rbegin(), parts.rend());
  }
  return text();
}

std::string FileTree::resolve_parent(const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : child_path(resolve(path.substr(0, slash)), path.substr(slash + 1));
}

Fd FileTree::open(const std::string& path, const FileStamp& stamp) const {
  Fd fd = open_rooted(root_.get(), path, O_RDONLY | O_NONBLOCK, Links::kRefused);
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    throw Error(one_line(fmt::format("cannot read '{}/{}': {}", name_, path, std::strerror(errno))));
  // A stage's files are not checked: they do not change, and an overlay may report a different inode for the same file.
  if (kind_ == Kind::kContext && stamp_of(info) != stamp)
    throw Error(one_line(fmt::format("'{}/{}' changed while it was being copied; build again", name_, path)));
  return fd;
}

std::optional<std::string> FileTree::read(const std::string& path) const {
  const Fd fd = open_rooted(root_.get(), resolve(path), O_RDONLY | O_NONBLOCK, Links::kRefused);
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(one_line(fmt::format("cannot read '{}/{}': {}", name_, path, std::strerror(errno))));
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMaxReadSize) throw Error(one_line(fmt::format("'{}/{}' is larger than 8 MiB", name_, path)));
  }
}

}  // namespace adaptdl::image
