#include "image/sandbox/mount_points.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

constexpr int kMaxTargetLinks = 40;

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Restores a directory's times after an entry was created or removed in it.
class KeptTimes {
 public:
  explicit KeptTimes(int directory) : directory_(directory) { known_ = ::fstat(directory, &status_) == 0; }
  ~KeptTimes() {
    const timespec times[2] = {status_.st_atim, status_.st_mtim};
    if (known_) ::futimens(directory_, times);
  }
  KeptTimes(const KeptTimes&) = delete;
  KeptTimes& operator=(const KeptTimes&) = delete;

 private:
  const int directory_;
  struct stat status_ {};
  bool known_ = false;
};

bool same(const struct stat& one, const struct stat& other) {
  return one.st_mode == other.st_mode && one.st_uid == other.st_uid && one.st_gid == other.st_gid &&
         one.st_mtim.tv_sec == other.st_mtim.tv_sec && one.st_mtim.tv_nsec == other.st_mtim.tv_nsec;
}

bool make(int root, const std::string& path, bool directory, bool keep_times) {
  const Fd parent = open_rooted(root, parent_of(path), O_RDONLY | O_DIRECTORY, Links::kRefused);
  if (!parent) return false;
  std::optional<KeptTimes> kept;
  if (keep_times) kept.emplace(parent.get());
  const std::string name = name_of(path);
  if (directory) return ::mkdirat(parent.get(), name.c_str(), 0755) == 0;
  return static_cast<bool>(
      Fd(::openat(parent.get(), name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644)));
}

// Returns a link's target. Refuses links in /proc, which may lead to this process's open files.
std::optional<std::string> target_of(const Fd& link) {
  struct statfs system {};
  if (::fstatfs(link.get(), &system) != 0) return {};
  if (system.f_type == PROC_SUPER_MAGIC) {
    errno = ELOOP;
    return {};
  }
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(link.get(), "", target, sizeof target);
  if (size < 0) return {};
  return std::string(target, static_cast<std::size_t>(size));
}

}  // namespace

FoundPath find_or_make(int root, const std::string& path, bool directory, std::vector<std::string>& made,
                       bool keep_times) {
  std::vector<std::string> left = split(path, '/');
  std::reverse(left.begin(), left.end());
  std::string done;
  const auto failed = [](int error) {
    errno = error;
    return FoundPath();
  };
  for (int links = 0; !left.empty();) {
    const std::string part = std::move(left.back());
    left.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      done = parent_of(done);
      continue;
    }
    const bool last = std::all_of(left.begin(), left.end(), [](const std::string& p) { return p.empty() || p == "."; });
    const bool wants_directory = !last || directory;
    const std::string next = done.empty() ? part : done + "/" + part;
    const Fd file = open_rooted(root, next, O_PATH | O_NOFOLLOW, Links::kRefused);
    struct stat status {};
    if (!file) {
      if (errno != ENOENT || !make(root, next, wants_directory, keep_times)) return {};
      made.push_back(next);
    } else if (::fstat(file.get(), &status) != 0) {
      return {};
    } else if (S_ISLNK(status.st_mode)) {
      const std::optional<std::string> target = target_of(file);
      if (!target) return {};
      if (++links > kMaxTargetLinks) return failed(ELOOP);
      if (target->starts_with('/')) done.clear();
      const std::vector<std::string> parts = split(*target, '/');
      left.insert(left.end(), parts.rbegin(), parts.rend());
      continue;
    } else if (S_ISDIR(status.st_mode) != wants_directory) {
      return failed(wants_directory ? ENOTDIR : EISDIR);
    }
    done = next;
  }
  Fd file = open_rooted(root, done, O_PATH, Links::kRefused);
  return {std::move(file), std::move(done)};
}

MountTraces::MountTraces(Fd upper, const std::vector<std::string>& made) : top_(std::move(upper)) {
  std::set<std::string> paths;
  for (const std::string& each : made) paths.insert(each);
  // Without new mount points, the overlay has not copied anything up.
  if (!paths.empty()) note_all(top_.get(), "", paths);
}

MountTraces MountTraces::in_directory(Fd directory, const std::vector<std::string>& made) {
  MountTraces traces(std::move(directory));
  for (const std::string& each : made) {
    const Fd parent = open_rooted(traces.top_.get(), parent_of(each), O_RDONLY | O_DIRECTORY, Links::kRefused);
    if (parent) traces.note(parent.get(), name_of(each), each, true);
  }
  return traces;
}

void MountTraces::note(int directory, const std::string& name, const std::string& path, bool made) {
  Trace trace;
  if (::fstatat(directory, name.c_str(), &trace.status, AT_SYMLINK_NOFOLLOW) != 0) return;
  trace.made = made;
  if (!made) trace.xattrs = read_entry(directory, name, path).xattrs;
  traces_.emplace(path, std::move(trace));
}

void MountTraces::note_all(int directory, const std::string& path, const std::set<std::string>& made) {
  const auto close = [](DIR* entries) { ::closedir(entries); };
  const std::unique_ptr<DIR, decltype(close)> entries(
      ::fdopendir(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), close);
  if (!entries) return;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name, inside = path.empty() ? name : path + "/" + name;
    if (name == "." || name == "..") continue;
    note(directory, name, inside, made.contains(inside));
    const Fd child(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (child) note_all(child.get(), inside, made);
  }
}

void MountTraces::remove() {
  // In reverse order, so that entries are removed before their directory.
  for (auto each = traces_.rbegin(); each != traces_.rend(); ++each) {
    const auto& [path, before] = *each;
    const Fd parent = open_rooted(top_.get(), parent_of(path), O_RDONLY | O_DIRECTORY, Links::kRefused);
    const std::string name = name_of(path);
    struct stat now {};
    if (!parent || ::fstatat(parent.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (now.st_ino != before.status.st_ino || (now.st_mode & S_IFMT) != (before.status.st_mode & S_IFMT)) continue;
    const bool directory = S_ISDIR(now.st_mode);
    // A mount point that was created is removed if it is empty; a directory that was copied up is removed only if it is
    // unchanged.
    if (before.made ? !directory && now.st_size != 0
                    : !same(now, before.status) || read_entry(parent.get(), name, path).xattrs != before.xattrs)
      continue;
    const KeptTimes kept(parent.get());
    ::unlinkat(parent.get(), name.c_str(), directory ? AT_REMOVEDIR : 0);
  }
}

}  // namespace adaptdl::image
