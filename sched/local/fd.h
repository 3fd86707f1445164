// File descriptors that close themselves.
#pragma once

#include <unistd.h>

#include <utility>

namespace adaptdl::sched {

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
  // Hands it over: to be closed by whoever takes it.
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

// A pipe whose ends are closed on exec and are none of the descriptors 0 to 2. Throws Error if there are no more
// descriptors.
Pipe make_pipe();

// Closes the descriptors from `first` on, except `keep` (-1: none). Async-signal-safe, as the next one is.
void close_from(int first, int keep = -1) noexcept;

// Closes the descriptors from `first` on at the next exec.
void close_on_exec_from(int first) noexcept;

// Opens /dev/null as each of the descriptors 0 to 2 that is closed: another file could get its number, and what is
// printed.
void open_standard_descriptors() noexcept;

// Throws Error on failure.
void set_nonblocking(const Fd& fd);

}  // namespace adaptdl::sched
