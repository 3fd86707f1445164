#include "terminal/output_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace adaptdl::cli {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;

bool takes_more(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  return ::poll(&polled, 1, 0) > 0;
}

}  // namespace

void OutputQueue::put(int fd, std::string text) {
  if (text.empty() || refused(fd)) return;
  size_ += text.size();
  if (!chunks_.empty() && chunks_.back().fd == fd && chunks_.back().text.size() < kChunk) {
    chunks_.back().text += text;
  } else {
    chunks_.push_back({fd, std::move(text)});
  }
}

void OutputQueue::write_some() {
  while (!chunks_.empty() && takes_more(chunks_.front().fd)) write_piece();
}

void OutputQueue::write_all() {
  while (!chunks_.empty()) write_piece();
}

// Returns the descriptor to write to.
int OutputQueue::target(int fd) {
  if (fd < 0 || fd >= kStandard) return fd;
  std::optional<Fd>& terminal = terminals_[fd];
  if (!terminal && ::isatty(fd) == 1)
    terminal.emplace(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return terminal && *terminal ? terminal->get() : fd;
}

void OutputQueue::write_piece() {
  const Chunk& chunk = chunks_.front();
  // A writable pipe accepts PIPE_BUF bytes without blocking.
  const std::size_t piece = std::min<std::size_t>(chunk.text.size() - written_, PIPE_BUF);
  ssize_t written =
      refused(chunk.fd) ? static_cast<ssize_t>(piece) : ::write(target(chunk.fd), chunk.text.data() + written_, piece);
  if (written < 0 && errno == EINTR) return;
  if (written < 0 && errno == EAGAIN) {
    // The terminal has no room, or another process made the descriptor non-blocking.
    pollfd polled{chunk.fd, POLLOUT, 0};
    ::poll(&polled, 1, 100);
    return;
  }
  if (written < 0) {
    // A full disk may have space later; a reader or terminal that has gone does not come back.
    const bool for_good = errno == EPIPE || errno == EIO || errno == EBADF;
    if (for_good && chunk.fd >= 0 && chunk.fd < kStandard) refused_[chunk.fd] = true;
    written = static_cast<ssize_t>(piece);
  }
  written_ += static_cast<std::size_t>(written);
  size_ -= static_cast<std::size_t>(written);
  if (written_ == chunk.text.size()) {
    chunks_.pop_front();
    written_ = 0;
  }
}

}  // namespace adaptdl::cli
