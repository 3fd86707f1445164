#include "image/mount_points.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "adaptdl/error.h"
#include "image/text_parts.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
constexpr int kMostTargetLinks = 40;

[[noreturn]] void fail_mount_point(const std::string& target, int error) {
  throw Error(fmt::format("cannot mount something at {}: {}", target, std::strerror(error)));
}

// Of directories that something is made in or removed from, and that shall look as if it had not been.
class KeptTimes {
 public:
  explicit KeptTimes(const std::string& child) : path_(fs::path(child).parent_path()) {
    known_ = ::lstat(path_.c_str(), &status_) == 0;
  }
  ~KeptTimes() {
    const timespec times[2] = {status_.st_atim, status_.st_mtim};
    if (known_) ::utimensat(AT_FDCWD, path_.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
  KeptTimes(const KeptTimes&) = delete;
  KeptTimes& operator=(const KeptTimes&) = delete;

 private:
  std::string path_;
  struct stat status_ {};
  bool known_ = false;
};

bool same(const struct stat& one, const struct stat& other) {
  return one.st_mode == other.st_mode && one.st_uid == other.st_uid && one.st_gid == other.st_gid &&
         one.st_mtim.tv_sec == other.st_mtim.tv_sec && one.st_mtim.tv_nsec == other.st_mtim.tv_nsec;
}

}  // namespace

void MountPoints::make(const std::string& path, bool directory) {
  const KeptTimes kept(path);
  const int file = directory ? ::mkdir(path.c_str(), 0755)
                             : ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0) fail_mount_point(path, errno);
  if (!directory) ::close(file);
  made_.push_back({path, directory ? Made::kDirectory : Made::kFile});
}

std::string MountPoints::prepare(const std::string& target, bool directory) {
  std::vector<std::string> left = split(target, '/');
  std::reverse(left.begin(), left.end());
  fs::path done = "/";
  for (int links = 0; !left.empty();) {
    const std::string part = std::move(left.back());
    left.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      done = done.parent_path();
      continue;
    }
    const bool last = std::all_of(left.begin(), left.end(), [](const std::string& p) { return p.empty() || p == "."; });
    const fs::path path = done / part;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_mount_point(target, errno);
      make(path, !last || directory);
    } else if (S_ISLNK(status.st_mode)) {
      if (++links > kMostTargetLinks) fail_mount_point(target, ELOOP);
      const fs::path link = fs::read_symlink(path);
      if (link.is_absolute()) done = "/";
      std::vector<std::string> parts = split(link.string(), '/');
      left.insert(left.end(), parts.rbegin(), parts.rend());
      continue;
    } else if (S_ISDIR(status.st_mode) != (!last || directory)) {
      fail_mount_point(target, S_ISDIR(status.st_mode) ? EISDIR : ENOTDIR);
    }
    done = path;
  }
  return done;
}

void MountPoints::note_copies(int directory, const std::string& path) {
  const auto close = [](DIR* entries) { ::closedir(entries); };
  const std::unique_ptr<DIR, decltype(close)> entries(
      ::fdopendir(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), close);
  if (!entries) return;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const net::Fd child(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    Copy copy;
    if (!child || ::fstat(child.get(), &copy.status) != 0) continue;
    copy.xattrs = read_entry(child.get(), ".", path + name).xattrs;
    copies_.emplace(path + name, std::move(copy));
    note_copies(child.get(), path + name + "/");
  }
}

void MountPoints::complete() {
  // Nothing was made, so nothing was copied either.
  if (std::any_of(made_.begin(), made_.end(), [](const Step& step) { return step.made != Made::kMount; })) {
    const net::Fd top(::openat(upper_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (top) note_copies(top.get(), "");
  }
}

void MountPoints::remove() {
  // Now, as to read attributes takes a /proc.
  std::erase_if(copies_, [&](const auto& copy) {
    const auto& [path, before] = copy;
    const net::Fd directory(::openat(upper_.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return !directory || read_entry(directory.get(), ".", path).xattrs != before.xattrs;
  });
  for (auto step = made_.rbegin(); step != made_.rend(); ++step) {
    if (step->made == Made::kMount) {
      ::umount2(step->path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
      continue;
    }
    struct stat status {};
    if (::lstat(step->path.c_str(), &status) != 0) continue;
    const KeptTimes kept(step->path);
    if (step->made == Made::kDirectory)
      ::rmdir(step->path.c_str());
    else if (S_ISREG(status.st_mode) && status.st_size == 0)
      ::unlink(step->path.c_str());
  }
  made_.clear();
  remove_copies();
}

// Directories that the overlay copied up to make something in them: nothing else has changed there. They are removed
// below the overlay, which nobody uses any more.
void MountPoints::remove_copies() {
  for (auto copy = copies_.rbegin(); copy != copies_.rend(); ++copy) {
    const auto& [path, before] = *copy;
    const net::Fd directory(::openat(upper_.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat now {};
    if (!directory || ::fstat(directory.get(), &now) != 0 || !same(now, before.status)) continue;
    const std::string parent = fs::path(path).parent_path();
    struct stat above {};
    const bool known = ::fstatat(upper_.get(), parent.empty() ? "." : parent.c_str(), &above, 0) == 0;
    if (::unlinkat(upper_.get(), path.c_str(), AT_REMOVEDIR) != 0 || !known) continue;
    const timespec times[2] = {above.st_atim, above.st_mtim};
    ::utimensat(upper_.get(), parent.empty() ? "." : parent.c_str(), times, 0);
  }
}

}  // namespace adaptdl::image
