#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <future>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

namespace adaptdl::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHashChunk = std::size_t{256} << 10;  // stays in the processor's cache between read and checksum
constexpr std::size_t kReadChunk = std::size_t{1} << 20;    // one 1 GiB call is slower than a thousand 1 MiB calls
constexpr std::size_t kMaxReaders = 4;
constexpr std::size_t kReadShare = std::size_t{4} << 20;      // min bytes for which a thread pays off
constexpr std::uint64_t kWriteback = std::uint64_t{8} << 20;  // bytes after which writeback is started
constexpr std::uint64_t kMaxDirty = std::uint64_t{64} << 20;  // max bytes with incomplete writeback

std::int64_t modified_ns(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

std::string errno_text(const std::string& action, int error) {
  return fmt::format("{}: {}", action, std::generic_category().message(error));
}

void throw_write_error(const std::string& action, int error) {
  if (error == ENOSPC || error == EDQUOT) throw NoSpace(errno_text(action, error));
  throw CheckpointError(errno_text(action, error));
}

void throw_read_error(const std::string& action, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENXIO:
      throw Damage(errno_text(action, error));
    case EIO:
      throw Unreadable(errno_text(action, error));
    default:
      throw CheckpointError(errno_text(action, error));
  }
}

Fd open_directory(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_read_error(fmt::format("cannot open '{}'", path.string()), errno);
  return fd;
}

InputFile::InputFile(const Fd& directory, const fs::path& path, const std::string& name)
    // Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
    : Input(path / name, 0), fd_(::openat(directory.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!fd_) throw_read_error(fmt::format("cannot open '{}'", path_.string()), errno);
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw_read_error(fmt::format("cannot read '{}'", path_.string()), errno);
  if (!S_ISREG(info.st_mode)) throw Damage(fmt::format("'{}' is not a regular file", path_.string()));
  size_ = static_cast<std::uint64_t>(info.st_size);
  modified_ns_ = modified_ns(info);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  const auto threads =
      std::min<std::size_t>({kMaxReaders, std::thread::hardware_concurrency(), out.size() / kReadShare});
  if (threads < 2) return read_part(offset, out);
  const std::size_t share = out.size() / threads;
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) {
    const auto part = i + 1 == threads ? out.subspan(i * share) : out.subspan(i * share, share);
    others.push_back(std::async(std::launch::async, [this, part, at = offset + i * share] { read_part(at, part); }));
  }
  read_part(offset, out.first(share));
  for (auto& other : others) other.get();
}

void InputFile::read_part(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_.get(), out.data(), std::min(out.size(), kReadChunk), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_read_error(fmt::format("cannot read '{}'", path_.string()), errno);
    if (count == 0) throw Damage(fmt::format("'{}' is truncated: it ends at byte {}", path_.string(), offset));
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::string Input::read_all() const {
  std::string text(size_, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string Input::checksum() const {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(size_, kHashChunk)));
  Checksum checksum;
  for (std::uint64_t offset = 0; offset < size_; offset += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size_ - offset));
    read(offset, part);
    checksum.update(part);
  }
  return checksum.hex();
}

void InputFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw_read_error(fmt::format("cannot read '{}'", path_.string()), errno);
  if (static_cast<std::uint64_t>(info.st_size) != size_ || modified_ns(info) != modified_ns_)
    throw CheckpointError(fmt::format("'{}' was changed while it was being loaded", path_.string()));
}

OutputFile::OutputFile(const fs::path& path, Existing existing, mode_t permissions) : path_(path) {
  const int mode = existing == Existing::kReplace ? O_TRUNC : O_EXCL;
  fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, permissions));
  if (!fd_) throw_write_error(fmt::format("cannot create '{}'", path.string()), errno);
}

OutputFile::~OutputFile() {
  if (fd_) ::unlink(path_.c_str());
}

void OutputFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    auto chunk = data.first(std::min<std::size_t>(data.size(), kHashChunk));
    data = data.subspan(chunk.size());
    checksum_.update(chunk);
    while (!chunk.empty()) {
      const ssize_t count = ::write(fd_.get(), chunk.data(), chunk.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw_write_error(fmt::format("cannot write '{}'", path_.string()), errno);
      chunk = chunk.subspan(static_cast<std::size_t>(count));
      size_ += static_cast<std::uint64_t>(count);
    }
    start_writeback();
  }
}

void OutputFile::start_writeback() {
  const auto range = [this](std::uint64_t begin, std::uint64_t end, unsigned flags) {
    if (::sync_file_range(fd_.get(), static_cast<off_t>(begin), static_cast<off_t>(end - begin), flags) == 0) return;
    // sync_file_range is only a hint, and some file systems do not support it. Other errors must be reported, because
    // fsync may not report a failed write that has already been reported here.
    if (errno == EINVAL || errno == ESPIPE || errno == ENOSYS || errno == EOPNOTSUPP) return;
    throw_write_error(fmt::format("cannot write '{}'", path_.string()), errno);
  };
  if (size_ - started_ < kWriteback) return;
  range(started_, size_, SYNC_FILE_RANGE_WRITE);
  started_ = size_;
  if (started_ - awaited_ <= kMaxDirty) return;
  range(awaited_, started_ - kMaxDirty, SYNC_FILE_RANGE_WAIT_BEFORE);
  awaited_ = started_ - kMaxDirty;
}

FileInfo OutputFile::finish() {
  if (::fsync(fd_.get()) != 0) throw_write_error(fmt::format("cannot write '{}'", path_.string()), errno);
  fd_ = Fd();
  return {path_.filename().string(), size_, checksum_.hex()};
}

void sync_directory(const fs::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && ::fsync(fd.get()) == 0) return;
  if (fd && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
    return;  // such a file system cannot sync directories
  throw_write_error(fmt::format("cannot sync '{}'", path.string()), errno);
}

bool rename_new(const fs::path& from, const fs::path& to) {
  int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  // On file systems that do not support the flag, such as NFS, rename(2) still refuses to replace a nonempty directory.
  if (result != 0 && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
    result = ::rename(from.c_str(), to.c_str());
  if (result == 0) return true;
  if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return false;
  throw_write_error(fmt::format("cannot rename '{}' to '{}'", from.string(), to.string()), errno);
}

void make_directories(const fs::path& path) {
  const fs::path parent = path.parent_path();
  std::error_code error;
  if (!parent.empty() && parent != path && !fs::exists(parent, error)) make_directories(parent);
  if (::mkdir(path.c_str(), kPrivateDirectory) != 0) {
    if (errno == EEXIST) return;
    throw_write_error(fmt::format("cannot create '{}'", path.string()), errno);
  }
  sync_directory(parent.empty() ? fs::path(".") : parent);
}

std::string random_suffix() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace adaptdl::checkpoint
