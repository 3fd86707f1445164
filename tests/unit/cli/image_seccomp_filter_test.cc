// Tests the filter for a step's system calls with real processes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "another_process.h"
#include "image/sandbox/seccomp_filter.h"
#include "image_root.h"
#include "image_seccomp_support.h"
#include "temporary_directory.h"

namespace image_seccomp_filter_test {

using namespace testing;
using image_seccomp_support::kX32;

namespace {

std::string filtered(const std::function<std::string()>& call) {
  return in_another_process([&] {
    apply_filter(step_filter());
    return call();
  });
}

// Returns the result of a call with these arguments under the filter.
template <typename... Arguments>
std::string end_of(long number, Arguments... arguments) {
  return filtered([&] {
    const long result = syscall(number, arguments...);
    return std::string(result < 0 ? strerrorname_np(errno) : "success");
  });
}

#ifdef __x86_64__
// Makes a system call as a 32-bit program does.
long call_i386(int number, int first) {
  long result;
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(0), "d"(0), "S"(0), "D"(0) : "memory");
  return result;
}
#endif

}  // namespace

TEST_CASE("administrative system calls are rejected even if the namespace would permit them") {
  REQUIRE(build_namespace.obstacle == "");
  CHECK(end_of(SYS_unshare, CLONE_NEWUSER) == "EPERM");
  CHECK(end_of(SYS_unshare, CLONE_NEWNS) == "EPERM");
  CHECK(end_of(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, 0) == "EPERM");
  CHECK(end_of(SYS_setns, -1, 0) == "EPERM");
  CHECK(end_of(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr) == "EPERM");
  CHECK(end_of(SYS_umount2, "/nothing", 0) == "EPERM");
  CHECK(end_of(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1) == "EPERM");
  CHECK(end_of(SYS_add_key, nullptr, nullptr, nullptr, 0, 0) == "EPERM");
  CHECK(end_of(SYS_request_key, nullptr, nullptr, nullptr, 0) == "EPERM");
  CHECK(end_of(SYS_bpf, BPF_MAP_CREATE, nullptr, ~0U) == "EPERM");
  CHECK(end_of(SYS_perf_event_open, nullptr, -1, -1, -1, 0) == "EPERM");
  CHECK(end_of(SYS_open_by_handle_at, -1, nullptr, 0) == "EPERM");
  CHECK(end_of(SYS_io_uring_setup, 0, nullptr) == "EPERM");
  CHECK(end_of(SYS_userfaultfd, -1) == "EPERM");
  CHECK(end_of(SYS_finit_module, -1, "", 0) == "EPERM");
  CHECK(end_of(SYS_socket, AF_VSOCK, SOCK_STREAM, 0) == "EPERM");
  CHECK(end_of(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0) == "EPERM");
}

TEST_CASE("clone3 and unknown system calls fail with ENOSYS, so that libraries fall back") {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  CHECK(end_of(SYS_clone3, &arguments, sizeof arguments) == "ENOSYS");
  CHECK(end_of(9999) == "ENOSYS");
  CHECK(end_of(-1) == "ENOSYS");
}

TEST_CASE("ordinary programs and system calls work under the filter") {
  TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  write(file, "");
  CHECK(filtered([] {
          const pid_t child = fork();
          if (child == 0) {
            execl("/bin/true", "true", nullptr);
            _exit(1);
          }
          int status = -1;
          waitpid(child, &status, 0);
          return std::to_string(status);
        }) == "0");
  CHECK(filtered([] {
          std::string text;
          std::thread([&] { text = "from a thread"; }).join();
          return text;
        }) == "from a thread");
  CHECK(end_of(SYS_socket, AF_INET, SOCK_STREAM, 0) == "success");
  CHECK(end_of(SYS_socket, AF_UNIX, SOCK_STREAM, 0) == "success");
  CHECK(end_of(SYS_socket, AF_NETLINK, SOCK_RAW, 0) == "success");
  const int user = build_namespace.one_id.empty() ? 500 : 0;
  CHECK(end_of(SYS_fchownat, AT_FDCWD, file.c_str(), user, user, 0) == "success");
  CHECK(end_of(SYS_chroot, directory.path().c_str()) == "success");
  CHECK(end_of(SYS_personality, PER_LINUX) == "success");
  CHECK(end_of(SYS_setuid, user) == "success");
}

TEST_CASE("the filter is applied without no_new_privs, so that setuid programs work") {
  CHECK(filtered([] {
          const std::string status = read("/proc/self/status");
          const auto line = [&](const char* name) {
            const std::size_t at = status.find(name);
            return status.substr(at, status.find('\n', at) - at);
          };
          return line("NoNewPrivs:") + " " + line("Seccomp:");
        }) == "NoNewPrivs:\t0 Seccomp:\t2");
}

#ifdef __x86_64__
TEST_CASE("32-bit system calls do not bypass the filter") {
  CHECK(end_of(kX32 | SYS_unshare, CLONE_NEWUSER) == "EPERM");
  CHECK(end_of(kX32 | SYS_mount, nullptr, nullptr, nullptr, 0, nullptr) == "EPERM");
  // The call is first made without the filter, to check that the kernel supports it.
  const std::string own = in_another_process([] { return call_i386(20, 0) == getpid() ? "process id" : "wrong"; });
  if (own.starts_with("signal")) {
    MESSAGE("skipped: this kernel does not run 32-bit programs");
    return;
  }
  REQUIRE(own == "process id");
  CHECK(filtered([] { return call_i386(20, 0) == getpid() ? "process id" : "wrong"; }) == "process id");
  const auto end_of_i386 = [](int number, int first) {
    return filtered([&] { return std::string(strerrorname_np(static_cast<int>(-call_i386(number, first)))); });
  };
  CHECK(end_of_i386(310, CLONE_NEWUSER) == "EPERM");            // unshare
  CHECK(end_of_i386(120, CLONE_NEWUSER | SIGCHLD) == "EPERM");  // clone
  CHECK(end_of_i386(21, 0) == "EPERM");                         // mount
  CHECK(end_of_i386(435, 0) == "ENOSYS");                       // clone3
}
#endif

TEST_CASE("a filter that cannot be installed is reported with the reason") {
  CHECK(in_another_process([] {
          __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
          __user_cap_data_struct none[2]{};
          if (syscall(SYS_capset, &header, none) != 0) return std::string("capset");
          apply_filter(step_filter());
          return std::string("applied");
        }) == "error: cannot install the system call filter: Permission denied");
  CHECK(in_another_process([] {
          step_filter();
          apply_filter({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)});
          apply_filter(step_filter());
          return std::string("applied");
        }) == "error: the kernel must support system call filters (CONFIG_SECCOMP_FILTER): Function not implemented");
}

}  // namespace image_seccomp_filter_test
