#include "base/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace adaptdl {
namespace fs = std::filesystem;
namespace {

constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;

std::error_code last_error() { return {errno, std::generic_category()}; }

bool is_open_to_others(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (info.st_mode & kOfOthers) != 0;
}

}  // namespace

std::error_code create_private_directories(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return {};
  if (!path.has_filename()) return create_private_directories(path.parent_path());
  if (const auto failed = create_private_directories(path.parent_path())) return failed;
  if (::mkdir(path.c_str(), kPrivateDirectory) == 0) return {};
  if (errno != EEXIST) return last_error();
  // Another process may have created the directory in the meantime.
  return fs::is_directory(path, error) ? std::error_code() : std::make_error_code(std::errc::not_a_directory);
}

std::error_code create_private_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, kPrivateFile);
  if (fd < 0) return last_error();
  ::close(fd);
  return {};
}

std::error_code restrict_to_user(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return last_error();
  if ((info.st_mode & kOfOthers) == 0) return {};
  return ::chmod(path.c_str(), info.st_mode & ~(S_IFMT | kOfOthers)) == 0 ? std::error_code() : last_error();
}

std::error_code restrict_tree_to_user(const fs::path& directory) {
  if (!is_open_to_others(directory)) return {};
  if (const auto failed = restrict_to_user(directory)) return failed;
  std::error_code error;
  for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->is_symlink(error)) continue;
    if (const auto failed = restrict_to_user(at->path())) return failed;
  }
  return error;
}

}  // namespace adaptdl
