// The copier (kube/copy/copier.h), which runs in a container while a large file is copied. It is linked statically,
// so that it requires nothing from the container, and is used because the tools in images are slow.
//
//   copier                           exits with 0 to show that it can run
//   copier sum FILE SIZE             prints the XXH3-128 of the first SIZE bytes
//   copier receive FILE OFFSET SIZE  writes the next SIZE bytes of standard input to FILE from OFFSET on, and prints
//                                   their XXH3-128
//   copier send FILE OFFSET SIZE     writes the bytes of FILE in the range [OFFSET, SIZE) to standard output, and the
//                                   XXH3-128 of the first SIZE bytes to standard error
//
// On an error, the copier exits with 1 and writes a line to standard error.
#define XXH_INLINE_ALL
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kBuffer = std::size_t{128} << 10;  // fits into a core's own cache
constexpr int kPipe = 1 << 20;
char buffer[kBuffer];

[[noreturn]] void fail(const char* file, const char* why) {
  std::fprintf(stderr, "%s: %s\n", file, why);
  std::exit(1);
}
[[noreturn]] void fail(const char* file) { fail(file, std::strerror(errno)); }

// Reads up to `left` bytes into the buffer, and at least one.
std::size_t read_some(int from, std::uint64_t left, const char* file) {
  for (;;) {
    const ssize_t got = ::read(from, buffer, left < kBuffer ? left : kBuffer);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) fail(file, "unexpected end of file");
    if (errno != EINTR) fail(file);
  }
}

void write_all(int to, std::size_t size, const char* file) {
  for (std::size_t written = 0; written < size;) {
    const ssize_t put = ::write(to, buffer + written, size - written);
    if (put >= 0) {
      written += static_cast<std::size_t>(put);
    } else if (errno != EINTR) {
      fail(file);
    }
  }
}

class Sum {
 public:
  Sum() { XXH3_128bits_reset(&state_); }

  // Adds the next `size` bytes from `from` to the checksum, and writes them to `to` unless `to` is negative. Closes
  // `to`.
  void pass(int from, int to, std::uint64_t size, const char* file) {
    while (size > 0) {
      const std::size_t got = read_some(from, size, file);
      XXH3_128bits_update(&state_, buffer, got);
      if (to >= 0) write_all(to, got, file);
      size -= got;
    }
    if (to >= 0 && ::close(to) != 0) fail(file);
  }

  void print(std::FILE* to) const {
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(&state_));
    for (const unsigned char byte : sum.digest) std::fprintf(to, "%02x", byte);
    std::fprintf(to, "\n");
  }

 private:
  XXH3_state_t state_;
};

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

int open_source(const char* file) {
  const int from = ::open(file, O_RDONLY | O_CLOEXEC);
  if (from < 0) fail(file);
  return from;
}

// Enlarges a pipe, if permitted, so that both ends wait for each other less often.
void widen(int pipe) { ::fcntl(pipe, F_SETPIPE_SZ, kPipe); }

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 0;
  const char* file = count > 2 ? words[2] : "";
  Sum sum;
  if (count == 4 && std::strcmp(words[1], "sum") == 0) {
    sum.pass(open_source(file), -1, number(words[3]), file);
    sum.print(stdout);
  } else if (count == 5 && std::strcmp(words[1], "receive") == 0) {
    const std::uint64_t offset = number(words[3]);
    const int to = ::open(file, O_WRONLY | O_CREAT | O_CLOEXEC | (offset == 0 ? O_TRUNC : 0), 0666);
    if (to < 0 || ::lseek(to, static_cast<off_t>(offset), SEEK_SET) < 0) fail(file);
    widen(STDIN_FILENO);
    sum.pass(STDIN_FILENO, to, number(words[4]), file);
    sum.print(stdout);
  } else if (count == 5 && std::strcmp(words[1], "send") == 0) {
    const std::uint64_t offset = number(words[3]);
    const int from = open_source(file);
    widen(STDOUT_FILENO);
    sum.pass(from, -1, offset, file);
    sum.pass(from, STDOUT_FILENO, number(words[4]) - offset, file);
    sum.print(stderr);
  } else {
    fail(words[1], "unknown command");
  }
  return 0;
}
