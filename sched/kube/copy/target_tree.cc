#include "kube/copy/target_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "adaptdl/error.h"
#include "kube/copy/temporary_file.h"

namespace adaptdl::kube {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

}  // namespace

std::vector<std::string> split_name(std::string_view name) {
  std::vector<std::string> parts;
  const auto refuse = [name](const char* why) {
    throw Error(fmt::format("invalid entry '{}' in the archive: {}", name, why));
  };
  if (name.empty()) refuse("empty name; the rest is not unpacked");
  if (name.front() == '/') refuse("absolute path; the rest is not unpacked");
  for (const std::filesystem::path& part : std::filesystem::path(name)) {
    if (part == "..") refuse("leads outside the target; the rest is not unpacked");
    if (!part.empty() && part != ".") parts.push_back(part.string());
  }
  return parts;
}

TargetTree::TargetTree(std::filesystem::path directory)
    : directory_(std::move(directory)), root_(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!root_) fail("open directory '" + directory_.string() + "'");
}

std::string TargetTree::shown(const std::vector<std::string>& name) const {
  return fmt::format("'{}'", (directory_ / fmt::format("{}", fmt::join(name, "/"))).string());
}

std::string TargetTree::temporary_name() { return fmt::format(".adaptdl-cp-{}-{}", ::getpid(), count_++); }

Fd TargetTree::open_directory(const std::vector<std::string>& name, bool make) {
  Fd directory(::openat(root_.get(), ".", kDirectory));
  for (std::size_t i = 0; directory && i < name.size(); ++i) {
    Fd next(::openat(directory.get(), name[i].c_str(), kDirectory));
    if (!next && errno == ENOENT && make && ::mkdirat(directory.get(), name[i].c_str(), 0755) == 0)
      next = Fd(::openat(directory.get(), name[i].c_str(), kDirectory));
    if (!next && (errno == ELOOP || errno == ENOTDIR)) {
      throw Error(fmt::format("cannot unpack into {}: not a directory (symbolic links are not followed)",
                              shown({name.begin(), name.begin() + static_cast<std::ptrdiff_t>(i) + 1})));
    }
    directory = std::move(next);
  }
  if (!directory) fail("open " + shown(name));
  return directory;
}

int TargetTree::parent(const std::vector<std::string>& name) {
  std::vector<std::string> wanted(name.begin(), name.end() - 1);
  if (!parent_fd_ || wanted != parent_name_) {
    parent_fd_ = open_directory(wanted, true);
    parent_name_ = std::move(wanted);
  }
  return parent_fd_.get();
}

void TargetTree::make_directory(const std::vector<std::string>& name, const Attributes& attributes) {
  if (name.empty()) return;
  if (::mkdirat(parent(name), name.back().c_str(), 0700) == 0) {
    made_.push_back({name, attributes});
  } else if (errno == EEXIST) {
    static_cast<void>(open_directory(name, false));
  } else {
    fail("create " + shown(name));
  }
}

void TargetTree::take_place(int directory, const std::string& temporary, const std::vector<std::string>& name) {
  if (::renameat(directory, temporary.c_str(), directory, name.back().c_str()) == 0) {
    // If both names refer to the same file, rename() does nothing.
    ::unlinkat(directory, temporary.c_str(), 0);
    return;
  }
  const int error = errno;
  ::unlinkat(directory, temporary.c_str(), 0);
  errno = error;
  fail("write " + shown(name));
}

void TargetTree::make_link(const std::vector<std::string>& name, const std::string& to) {
  const int directory = parent(name);
  const std::string temporary = temporary_name();
  if (::symlinkat(to.c_str(), directory, temporary.c_str()) != 0) fail("write " + shown(name));
  take_place(directory, temporary, name);
}

void TargetTree::make_hard_link(const std::vector<std::string>& name, const std::vector<std::string>& of) {
  const Fd from = open_directory({of.begin(), of.end() - 1}, false);
  const int directory = parent(name);
  const std::string temporary = temporary_name();
  struct stat status {};
  if (::fstatat(from.get(), of.back().c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail("read " + shown(of));
  if (!S_ISREG(status.st_mode))
    throw Error(fmt::format("cannot create a hard link to {}: not a regular file", shown(of)));
  if (::linkat(from.get(), of.back().c_str(), directory, temporary.c_str(), 0) != 0) fail("link " + shown(name));
  take_place(directory, temporary, name);
}

void TargetTree::begin_file(const std::vector<std::string>& name) {
  const int directory = parent(name);
  file_temporary_ = temporary_name();
  file_ = Fd(::openat(directory, file_temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) fail("write " + shown(name));
  file_name_ = name;
  const int own = ::fcntl(directory, F_DUPFD_CLOEXEC, 0);
  file_cleanup_ = std::make_unique<Cleanup>([held = std::make_shared<Fd>(own), temporary = file_temporary_] {
    ::unlinkat(held->get(), temporary.c_str(), 0);
  });
}

void TargetTree::write(std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write " + shown(file_name_));
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void TargetTree::end_file(std::uint64_t size, const Attributes& attributes) {
  const timespec times[] = {{0, UTIME_OMIT}, {attributes.modified, 0}};
  // Set the size as well, because a file may end with a hole.
  if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0 || ::fchmod(file_.get(), attributes.mode) != 0 ||
      ::futimens(file_.get(), times) != 0 || ::close(file_.release()) != 0)
    fail("write " + shown(file_name_));
  file_cleanup_->release();
  take_place(parent(file_name_), file_temporary_, file_name_);
}

void TargetTree::finish() {
  // The contents of a directory are finished before the directory itself, because changing the contents changes the
  // directory's time, and the directory's mode may forbid access to the contents.
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    const timespec times[] = {{0, UTIME_OMIT}, {made->attributes.modified, 0}};
    const Fd directory = open_directory(made->name, false);
    if (::futimens(directory.get(), times) != 0 || ::fchmod(directory.get(), made->attributes.mode) != 0)
      fail("set the mode and time of " + shown(made->name));
  }
  made_.clear();
}

}  // namespace adaptdl::kube
