#include "checkpoint/saving_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/private_files.h"

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

SavingDirectory::SavingDirectory(const fs::path& parent, std::uint64_t number) : parent_(parent) {
  // Before the directory is locked, a cleanup may mistake it for a leftover; the next attempt creates a new directory.
  constexpr int kTries = 10;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    path_ = parent / fmt::format("{}{}-{}-{}", kSavingPrefix, number, ::getpid(), random_suffix());
    if (::mkdir(path_.c_str(), kPrivateDirectory) != 0)
      throw_write_error(fmt::format("cannot create '{}'", path_.string()), errno);
    if (lock()) return;
  }
  throw CheckpointError(fmt::format("cannot create '{}': another process keeps deleting it", path_.string()));
}

SavingDirectory::~SavingDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(path_, ignored);
}

void SavingDirectory::commit(const fs::path& target) {
  sync_directory(path_);
  if (!rename_new(path_, target))
    throw CheckpointError(
        fmt::format("another process has written '{}': two jobs save to the same directory", target.string()));
  committed_ = true;
  sync_directory(parent_);
}

// Returns false if another process has deleted the directory or is about to.
bool SavingDirectory::lock() {
  lock_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_ && errno == ENOENT) return false;
  if (!lock_) {
    const int error = errno;
    ::rmdir(path_.c_str());
    throw_write_error(fmt::format("cannot open '{}'", path_.string()), error);
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(lock_.get(), &info) == 0 && info.st_nlink > 0;
}

}  // namespace adaptdl::checkpoint
