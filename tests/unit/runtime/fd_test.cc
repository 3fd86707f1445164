#include "base/fd.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <functional>

#include "adaptdl/error.h"
#include "refuse_system_calls.h"

namespace fd_test {

using namespace adaptdl;

namespace {

constexpr int kStray = 251;
constexpr int kKept = 100;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

// Checks that `body` returns true in a child with two additional descriptors, with and without close_range(2).
void check_in_child(const std::function<bool()>& body) {
  for (const unsigned error : {0, ENOSYS, EINVAL}) {
    CAPTURE(error);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      const bool ready = ::dup2(STDERR_FILENO, kStray) == kStray && ::dup2(STDERR_FILENO, kKept) == kKept &&
                         (error == 0 || testing::refuse_system_calls({SYS_close_range}, error));
      ::_exit(ready && body() ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
}

}  // namespace

TEST_CASE("close_from closes all descriptors from the given one on, except the kept one") {
  check_in_child([] {
    close_from(STDERR_FILENO + 1, kKept);
    return is_open(STDERR_FILENO) && is_open(kKept) && !is_open(kStray) && !is_open(STDERR_FILENO + 1);
  });
  check_in_child([] {
    close_from(kKept);
    return is_open(STDERR_FILENO) && !is_open(kKept) && !is_open(kStray);
  });
  check_in_child([] {
    close_from(0, kKept);
    return is_open(kKept) && !is_open(STDIN_FILENO) && !is_open(kStray);
  });
}

TEST_CASE("close_on_exec_from marks all descriptors from the given one on") {
  check_in_child([] {
    close_on_exec_from(kKept + 1);
    return !closes_on_exec(kKept) && closes_on_exec(kStray) && !closes_on_exec(STDERR_FILENO);
  });
}

}  // namespace fd_test
