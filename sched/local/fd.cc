#include "local/fd.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace {

// A process that was started with a standard descriptor closed gets it for its first pipe; replicas put their own
// there.
Fd above_standard(Fd fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  Fd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!moved) throw Error(fmt::format("cannot duplicate a file descriptor: {}", std::strerror(errno)));
  return moved;
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(
        fmt::format("cannot make a pipe: {}; fewer replicas or a higher `ulimit -n` may help", std::strerror(errno)));
  }
  Fd read(ends[0]), write(ends[1]);
  return {above_standard(std::move(read)), above_standard(std::move(write))};
}

void set_nonblocking(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
    throw Error(fmt::format("cannot make a pipe non-blocking: {}", std::strerror(errno)));
  }
}

}  // namespace adaptdl::sched
