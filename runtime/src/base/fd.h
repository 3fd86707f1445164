// Fd is a file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace adaptdl {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Gives up ownership: the caller must close the descriptor.
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

// Creates a pipe whose ends are closed on exec and are not descriptors 0 to 2. Throws Error if no descriptors are left.
Pipe make_pipe();

// Closes the descriptors from `first` on, except `keep` (-1: no exception). This function and the next one are
// async-signal-safe.
void close_from(int first, int keep = -1) noexcept;

// Marks the descriptors from `first` on as close-on-exec.
void close_on_exec_from(int first) noexcept;

// Opens /dev/null on each closed descriptor from 0 to 2. Otherwise, a file that is opened later could get one of these
// numbers and receive printed output.
void open_standard_descriptors() noexcept;

// Throws Error on failure.
void set_nonblocking(const Fd& fd);

}  // namespace adaptdl
