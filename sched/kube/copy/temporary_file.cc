#include "kube/copy/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

void check_space(const std::filesystem::path& directory, std::uint64_t size) {
  struct statvfs room {};
  if (::statvfs(directory.c_str(), &room) != 0) return;  // opening the file will report why
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (size > free) {
    throw Error(fmt::format("insufficient space in directory '{}': {} MiB free, {} MiB needed", directory.string(),
                            free >> 20, (size + (1 << 20) - 1) >> 20));
  }
}

}  // namespace

void fail(const std::string& action) { throw Error(fmt::format("cannot {}: {}", action, std::strerror(errno))); }

void write_all(int fd, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write " + what);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

TemporaryFile::TemporaryFile(const std::filesystem::path& target, std::uint64_t size) : target_(target) {
  const std::filesystem::path directory = target.has_parent_path() ? target.parent_path() : ".";
  check_space(directory, size);
  std::string name = (directory / ".adaptdl-cp-XXXXXX").string();
  fd_ = Fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) fail("create a file in directory '" + directory.string() + "'");
  path_ = name;
  cleanup_ = std::make_unique<Cleanup>([path = path_] { ::unlink(path.c_str()); });
}

void TemporaryFile::write(std::string_view bytes) { write_all(fd_.get(), bytes, "'" + target_.string() + "'"); }

void TemporaryFile::commit(mode_t mode, std::time_t modified) {
  const timespec times[] = {{0, UTIME_OMIT}, {modified, 0}};
  if (::fchmod(fd_.get(), mode & 0777) != 0 || ::futimens(fd_.get(), times) != 0 || ::close(fd_.release()) != 0 ||
      ::rename(path_.c_str(), target_.c_str()) != 0)
    fail("write '" + target_.string() + "'");
  cleanup_->release();
}

}  // namespace adaptdl::kube
