#include "local/base/directory_lock.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/private_files.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const fs::path& directory) { return directory / "lock"; }

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Locking lock_directory(const fs::path& directory, Fd& file) {
  file = Fd(::open(file_of(directory).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPrivateFile));
  if (!file) return errno == ENOENT ? Locking::kVanished : Locking::kFailed;
  if (const Locking locking = lock_file(file); locking != Locking::kLocked) return locking;
  // The previous holder of the lock may have removed the directory a moment ago.
  struct stat own {
  }, now{};
  const bool same = ::fstat(file.get(), &own) == 0 && ::stat(file_of(directory).c_str(), &now) == 0 &&
                    own.st_ino == now.st_ino && own.st_dev == now.st_dev;
  return same ? Locking::kLocked : Locking::kVanished;
}

bool is_locked(const fs::path& directory) { return is_file_locked(file_of(directory)); }

Locking lock_file(const Fd& file) {
  struct flock lock = whole_file();
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return Locking::kLocked;
  return errno == EAGAIN || errno == EACCES ? Locking::kHeld : Locking::kFailed;
}

bool is_file_locked(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock = whole_file();
  return file && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace adaptdl::sched
