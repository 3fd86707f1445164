#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl {
namespace {

// If a standard descriptor was closed at startup, a pipe could get its number, which replicas need for their own
// streams.
Fd above_standard(Fd fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  Fd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!moved) throw Error(fmt::format("cannot duplicate a file descriptor: {}", std::strerror(errno)));
  return moved;
}

constexpr unsigned kLastDescriptor = ~0U;

// Fails on Linux before 5.9, and with CLOSE_RANGE_CLOEXEC before 5.11.
bool close_range(int first, unsigned last, unsigned flags) noexcept {
  return ::syscall(SYS_close_range, static_cast<unsigned>(first), last, flags) == 0;
}

// Returns the descriptor that a name in /proc/self/fd denotes, or -1 for "." and "..".
int descriptor_number(const char* name) noexcept {
  int number = 0;
  for (; *name >= '0' && *name <= '9'; ++name) number = 10 * number + (*name - '0');
  return *name == '\0' ? number : -1;
}

// Calls `action` for each open descriptor from `first` on. opendir() is not async-signal-safe, since it allocates.
template <typename Action>
void for_each_open(int first, Action action) noexcept {
  const int directory = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    rlimit limit{};
    constexpr rlim_t kMaxDescriptors = 1 << 20;
    const rlim_t end =
        ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur, kMaxDescriptors) : kMaxDescriptors;
    for (int fd = first; fd < static_cast<int>(end); ++fd) action(fd);
    return;
  }
  alignas(dirent64) char buffer[4096];
  long size = 0;
  while ((size = ::syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      const int fd = descriptor_number(entry->d_name);
      if (fd >= first && fd != directory) action(fd);
      at += entry->d_reclen;
    }
  }
  ::close(directory);
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(
        fmt::format("cannot create a pipe: {}; fewer replicas or a higher `ulimit -n` may help", std::strerror(errno)));
  }
  Fd read(ends[0]), write(ends[1]);
  return {above_standard(std::move(read)), above_standard(std::move(write))};
}

void close_from(int first, int keep) noexcept {
  const bool keeps = keep >= first;
  const bool closed = (!keeps || keep == first || close_range(first, static_cast<unsigned>(keep) - 1, 0)) &&
                      close_range(keeps ? keep + 1 : first, kLastDescriptor, 0);
  if (closed) return;
  for_each_open(first, [keep](int fd) {
    if (fd != keep) ::close(fd);
  });
}

void close_on_exec_from(int first) noexcept {
  if (close_range(first, kLastDescriptor, CLOSE_RANGE_CLOEXEC)) return;
  for_each_open(first, [](int fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  });
}

void open_standard_descriptors() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() returns the lowest free descriptor.
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", O_RDWR);
  }
}

void set_nonblocking(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    throw Error(fmt::format("cannot make a pipe non-blocking: {}", std::strerror(errno)));
  }
}

}  // namespace adaptdl
