#include "image/copy_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "image/build_namespace.h"
#include "image/entry.h"
#include "socket.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_copy(const fs::path& path, int error) {
  throw Error(
      fmt::format("cannot copy {}: {}{}", path.string(), std::strerror(error), error == EINVAL ? one_id_hint() : ""));
}

// The owner first, as a change of it takes set-id bits away; the times last.
void copy_attributes(const fs::path& from, const fs::path& to, const struct stat& status) {
  if (::lchown(to.c_str(), status.st_uid, status.st_gid) != 0) fail_copy(to, errno);
  if (!S_ISLNK(status.st_mode)) {
    const net::Fd directory(::open(from.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) fail_copy(from, errno);
    for (const auto& [name, value] : read_entry(directory.get(), from.filename().string(), from.string()).xattrs)
      if (::lsetxattr(to.c_str(), name.c_str(), value.data(), value.size(), 0) != 0) fail_copy(to, errno);
    if (::chmod(to.c_str(), status.st_mode & 07777) != 0) fail_copy(to, errno);
  }
  const timespec times[2] = {status.st_atim, status.st_mtim};
  if (::utimensat(AT_FDCWD, to.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) fail_copy(to, errno);
}

void copy_one(const fs::path& from, const fs::path& to) {
  struct stat status {};
  if (::lstat(from.c_str(), &status) != 0) fail_copy(from, errno);
  std::error_code error;
  if (S_ISDIR(status.st_mode)) {
    if (::mkdir(to.c_str(), 0700) != 0) fail_copy(to, errno);
    copy_tree(from, to);
  } else if (S_ISREG(status.st_mode)) {
    fs::copy_file(from, to, error);
  } else if (S_ISLNK(status.st_mode)) {
    fs::copy_symlink(from, to, error);
  } else {
    return;
  }
  if (error) fail_copy(from, error.value());
  copy_attributes(from, to, status);
}

}  // namespace

void copy_tree(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error))
    copy_one(entry->path(), to / entry->path().filename());
  if (error) fail_copy(from, error.value());
}

}  // namespace adaptdl::image
