#include "image/sandbox/cache_mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "adaptdl/error.h"
#include "http/http.h"
#include "image/base/digest.h"
#include "image/sandbox/build_namespace.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kPause(20);

[[noreturn]] void fail_cache(const fs::path& path, int error) {
  throw Error(fmt::format("cannot use the cache mount '{}': {}{}", path.string(), std::strerror(error),
                          error == EINVAL ? one_id_hint() : ""));
}

// Creates the directory atomically; if another process creates it first, uses that directory.
void make_cache_directory(const fs::path& directory, const Mount& mount,
                          const std::function<void(const fs::path&)>& fill) {
  std::string draft = directory.string() + ".XXXXXX";
  if (::mkdtemp(draft.data()) == nullptr) fail_cache(draft, errno);
  try {
    if (fill) fill(draft);
    // Set the mode last, since changing the owner clears set-id bits.
    if (::chown(draft.c_str(), mount.user.value_or(0), mount.group.value_or(0)) != 0 ||
        ::chmod(draft.c_str(), mount.mode.value_or(0755)) != 0)
      fail_cache(directory, errno);
    if (::renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, directory.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno != EEXIST) fail_cache(directory, errno);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove_all(draft, ignored);
}

}  // namespace

// Returns false if the directory is in use.
bool CacheMount::take(const fs::path& directory, bool exclusive) {
  const std::string file = directory.string() + ".lock";
  for (;;) {
    Fd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) fail_cache(file, errno);
    if (::flock(lock.get(), (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      fail_cache(file, errno);
    }
    // The lock file may have been removed, together with its cache, before it was locked.
    struct stat held {
    }, named{};
    ::fstat(lock.get(), &held);
    if (::stat(file.c_str(), &named) != 0 || held.st_ino != named.st_ino) continue;
    ::futimens(lock.get(), nullptr);
    lock_ = std::move(lock);
    directory_ = directory;
    return true;
  }
}

CacheMount::CacheMount(const fs::path& caches, const Mount& mount, const std::stop_token& stop,
                       const std::function<void(const fs::path& directory)>& fill) {
  std::error_code error;
  if (fs::create_directories(caches, error); error) fail_cache(caches, error.value());
  const std::string begin = mount.from.empty() ? "" : fmt::format("\n{}\n{}", mount.from, mount.source);
  const fs::path first = caches / hex_of(sha256(mount.id + begin)).substr(0, 32);
  fs::path next = first;
  for (int number = 1; !take(next, mount.sharing != Mount::Sharing::kShared); ++number) {
    if (stop.stop_requested()) throw http::Stopped();
    if (mount.sharing == Mount::Sharing::kPrivate)
      next = fmt::format("{}-{}", first.string(), number);
    else
      std::this_thread::sleep_for(kPause);
  }
  if (!fs::exists(directory_)) make_cache_directory(directory_, mount, fill);
}

}  // namespace adaptdl::image
