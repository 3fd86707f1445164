#include "tune/journal/journal_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "adaptdl/error.h"
#include "checkpoint/files.h"
#include "tune/journal/journal_records.h"

namespace adaptdl::sched::tune {
namespace {

constexpr std::size_t kReadSize = std::size_t{1} << 20;  // bytes per read
constexpr std::chrono::milliseconds kRetryAfter{20};
constexpr std::size_t kTailSize = 64;  // bytes; more than the part that all lines have in common

// Reads `size` bytes at the offset, fewer only at the end of the file; sets `size` to the number of bytes read.
bool read_at(int fd, std::uint64_t offset, char* data, std::size_t& size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(fd, data + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  size = done;
  return true;
}

bool write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t count = ::write(fd, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    data.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool is_record(std::string_view line) {
  try {
    RecordParser().parse(line);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

JournalFile::JournalFile(std::filesystem::path path, bool create) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a FIFO would wait for its other end.
  Fd fd(open(O_RDONLY | O_NONBLOCK));
  if (!fd && errno == ENOENT && create) {
    fd = Fd(::open(path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!fd) fail("create");
    const auto parent = path_.parent_path();
    checkpoint::sync_directory(parent.empty() ? "." : parent);
  }
  if (!fd) fail("open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail("read");
  if (!S_ISREG(info.st_mode))
    throw Error(fmt::format("'{}' is not a regular file; choose another file", path_.string()));
  inode_ = info.st_ino;
}

void JournalFile::read(const std::function<void(std::string_view)>& use) {
  try {
    read_new(use);
  } catch (const Error&) {
    // Another writer may just have been repairing the line.
    std::this_thread::sleep_for(kRetryAfter);
    read_new(use);
  }
}

void JournalFile::read_new(const std::function<void(std::string_view)>& use) {
  // The file is opened each time because NFS shows the data of other writers only after an open.
  const Fd fd(open(O_RDONLY));
  if (!fd) fail("open");
  const std::uint64_t size = check_same(fd.get());
  check_tail(fd.get());
  std::string buffer;
  for (std::uint64_t next = offset_; next < size;) {
    const std::size_t kept = buffer.size();
    std::size_t count = std::min<std::uint64_t>(size - next, std::max(kReadSize, kept));
    buffer.resize(kept + count);
    if (!read_at(fd.get(), next, buffer.data() + kept, count)) fail("read");
    if (count == 0) break;
    buffer.resize(kept + count);
    next += count;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = buffer.find('\n', std::max(begin, kept))) != std::string::npos; begin = end + 1) {
      const std::string_view line = std::string_view(buffer).substr(begin, end - begin);
      try {
        use(line);
      } catch (const Error& error) {
        fail_line(error.what());
      }
      ++lines_;
      offset_ += line.size() + 1;
      const std::size_t tail = std::min(kTailSize, line.size() + 1);
      tail_.assign(buffer, end + 1 - tail, tail);
    }
    buffer.erase(0, begin);
    if (!buffer.empty() && buffer[0] != '{') fail_line("not a JSON object");
  }
}

bool JournalFile::repair() {
  const Fd fd(open(O_RDWR | O_APPEND));
  if (!fd) fail("write");
  const std::uint64_t size = check_same(fd.get());
  if (size == offset_) return false;
  std::string rest(size - offset_, '\0');
  std::size_t count = rest.size();
  if (!read_at(fd.get(), offset_, rest.data(), count)) fail("read");
  rest.resize(count);
  if (is_record(rest)) {
    if (!write_all(fd.get(), "\n") || ::fsync(fd.get()) != 0) fail("write");
    return true;
  }
  if (rest.find('\n') != std::string::npos) return true;  // appended by a process that had lost the lock
  if (!may_begin_record(rest)) fail_line("not a study operation");
  if (::ftruncate(fd.get(), static_cast<off_t>(offset_)) != 0) fail("write");
  return false;
}

void JournalFile::append(std::string_view lines) {
  const Fd fd(open(O_WRONLY | O_APPEND));
  if (!fd) fail("write");
  const std::uint64_t size = check_same(fd.get());
  if (!write_all(fd.get(), lines)) {
    const int error = errno;
    // After a partial write, for example on a full disk, the next line would continue this one.
    if (::ftruncate(fd.get(), static_cast<off_t>(size)) == 0) ::fsync(fd.get());
    errno = error;
    fail("write");
  }
  if (::fsync(fd.get()) != 0) fail("write");
}

int JournalFile::open(int flags) const { return ::open(path_.c_str(), flags | O_CLOEXEC); }

// Returns the size of the file, which must be the file that the constructor opened.
std::uint64_t JournalFile::check_same(int fd) const {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail("read");
  if (info.st_ino != inode_)
    throw Error(fmt::format("file '{}' was replaced by another file; restart to use the new file", path_.string()));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < offset_)
    throw Error(fmt::format(
        "file '{}' was truncated from {} to {} bytes; restore it from a backup, or restart to use what is left",
        path_.string(), offset_, size));
  return size;
}

void JournalFile::check_tail(int fd) const {
  std::string tail(tail_.size(), '\0');
  std::size_t count = tail.size();
  if (!read_at(fd, offset_ - count, tail.data(), count)) fail("read");
  if (count != tail_.size() || tail != tail_)
    throw Error(fmt::format("file '{}' was changed before line {}; restart to use the changed file", path_.string(),
                            lines_ + 1));
}

void JournalFile::fail(std::string_view action) const {
  throw Error(fmt::format("cannot {} file '{}': {}", action, path_.string(), std::strerror(errno)));
}

void JournalFile::fail_line(std::string_view what) const {
  const char* const way_out =
      lines_ == 0 ? "choose an Optuna journal file or a new file" : "restore the file from a backup or delete the line";
  throw Error(fmt::format("{}:{}: {}; {}", path_.string(), lines_ + 1, what, way_out));
}

}  // namespace adaptdl::sched::tune
