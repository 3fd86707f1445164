#include "image/sandbox/seccomp_filter.h"

#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/text_parts.h"
#include "image/base/failed_call.h"

namespace adaptdl::image {
namespace {

// The calls that Podman's default profile allows in a container with a step's capabilities, except for those that
// Docker's profile allows only with CAP_SYS_ADMIN, CAP_SYS_BOOT or CAP_SYSLOG. Names from other architectures have no
// effect.
constexpr const char* kAllowed =
    "_llseek _newselect accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind "
    "breakpoint brk cacheflush capget capset chdir chmod chown chown32 chroot clock_adjtime clock_adjtime64 "
    "clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close "
    "close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old "
    "epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat "
    "faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 "
    "fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 "
    "fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake "
    "futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 "
    "geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid "
    "getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname "
    "getsockopt gettid gettimeofday getuid getuid32 getxattr inotify_add_watch inotify_init inotify_init1 "
    "inotify_rm_watch io_cancel io_destroy io_getevents io_setup io_submit ioctl ioprio_get ioprio_set ipc kill "
    "landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen "
    "listxattr llistxattr lremovexattr lseek lsetxattr lstat lstat64 madvise mbind membarrier memfd_create "
    "memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt mprotect "
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 "
    "mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep "
    "newfstatat open openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free "
    "pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv "
    "process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readdir readlink "
    "readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr rename renameat "
    "renameat2 restart_syscall riscv_flush_icache rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask "
    "rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo "
    "s390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr sched_get_priority_max sched_get_priority_min "
    "sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval "
    "sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield "
    "seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto "
    "set_mempolicy set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32 "
    "setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 "
    "setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr shmat shmctl "
    "shmdt shmget shutdown sigaction sigaltstack signal signalfd signalfd4 sigpending sigprocmask sigreturn "
    "sigsuspend socketcall socketpair splice stat stat64 statfs statfs64 statx swapcontext symlink symlinkat sync "
    "sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun "
    "timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 "
    "timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime "
    "utimensat utimensat_time64 utimes vfork wait4 waitid waitpid write writev ";

// Known calls that fail with EPERM. All other calls, such as those from newer kernels, fail with ENOSYS, so that a C
// library falls back to older calls. The same applies to clone3, whose flags are in memory that a filter cannot read.
constexpr const char* kRefused =
    "acct add_key bdflush bpf clock_settime clock_settime64 delete_module fanotify_init finit_module fsconfig fsmount "
    "fsopen fspick init_module io_pgetevents io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp "
    "kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages mount mount_setattr move_mount move_pages "
    "nfsservctl nice oldfstat oldlstat oldolduname oldstat olduname open_by_handle_at open_tree pciconfig_iobase "
    "pciconfig_read pciconfig_write perf_event_open pivot_root process_madvise query_module quotactl quotactl_fd "
    "reboot request_key setdomainname sethostname setns settimeofday sgetmask ssetmask stime swapoff swapon syscall "
    "sysfs syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old vmsplice ";

struct Companions {
  std::uint32_t native, others[2];
};
// For each native architecture, the other architectures whose programs its kernel can run, as in the profile. Programs
// for any other architecture are killed, as in runc and crun: if every call failed, they could not even exit.
constexpr Companions kCompanions[] = {{SCMP_ARCH_X86_64, {SCMP_ARCH_X86, SCMP_ARCH_X32}},
                                      {SCMP_ARCH_AARCH64, {SCMP_ARCH_ARM}},
                                      {SCMP_ARCH_MIPS64, {SCMP_ARCH_MIPS, SCMP_ARCH_MIPS64N32}},
                                      {SCMP_ARCH_MIPS64N32, {SCMP_ARCH_MIPS, SCMP_ARCH_MIPS64}},
                                      {SCMP_ARCH_MIPSEL64, {SCMP_ARCH_MIPSEL, SCMP_ARCH_MIPSEL64N32}},
                                      {SCMP_ARCH_MIPSEL64N32, {SCMP_ARCH_MIPSEL, SCMP_ARCH_MIPSEL64}},
                                      {SCMP_ARCH_S390X, {SCMP_ARCH_S390}}};

// CLONE_NEWTIME is missing, since clone uses its bit for the signal number.
constexpr unsigned kNamespaces[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                    CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
#ifdef __s390__
constexpr unsigned kCloneFlags = 1;
#else
constexpr unsigned kCloneFlags = 0;
#endif

// PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 with UNAME26, and the value that only queries the personality.
constexpr std::uint32_t kPersonalities[] = {0, 0x8, 0x20000, 0x20008, 0xffffffff};

// The kernel's crypto API has had vulnerabilities, and virtual machine sockets reach the host from any network
// namespace.
constexpr unsigned kRefusedFamilies[] = {AF_ALG, AF_VSOCK};
// The other families below 64, as masks and values: the kernel reads 32 bits of the argument, while a comparison
// without a mask reads 64. socketcall in 32-bit programs is not covered, since it passes the family in memory.
struct Masked {
  std::uint32_t mask, value;
};
constexpr Masked kFamilies[] = {{~31u, 0}, {~3u, 32}, {~1u, 36}, {~0u, 39},
                                {~0u, 41}, {~1u, 42}, {~3u, 44}, {~15u, 48}};

class Filter {
 public:
  explicit Filter(std::uint32_t architecture) : context_(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS))) {
    if (!context_) throw Error("cannot build the system call filter: out of memory");
    if (architecture != ::seccomp_arch_native()) {
      check(::seccomp_arch_add(context_.get(), architecture));
      check(::seccomp_arch_remove(context_.get(), SCMP_ARCH_NATIVE));
    }
    // Use a binary search instead of hundreds of comparisons.
    check(::seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
  }

  void add(std::uint32_t action, const char* name) {
    // An older library does not know all of the calls.
    if (const int number = ::seccomp_syscall_resolve_name(name); number != __NR_SCMP_ERROR)
      check(::seccomp_rule_add_array(context_.get(), action, number, 0, nullptr));
  }
  void add(std::uint32_t action, const char* name, const scmp_arg_cmp& condition) {
    check(::seccomp_rule_add_array(context_.get(), action, ::seccomp_syscall_resolve_name(name), 1, &condition));
  }

  std::vector<sock_filter> program() const {
    // libseccomp can export a program only to a file.
    const Fd file(::memfd_create("filter", MFD_CLOEXEC));
    struct stat status {};
    if (!file) fail_call(kFailure);
    check(::seccomp_export_bpf(context_.get(), file.get()));
    if (::fstat(file.get(), &status) != 0) fail_call(kFailure);
    std::vector<sock_filter> result(static_cast<std::size_t>(status.st_size) / sizeof(sock_filter));
    if (::pread(file.get(), result.data(), result.size() * sizeof(sock_filter), 0) != status.st_size)
      fail_call(kFailure);
    return result;
  }

 private:
  static constexpr const char* kFailure = "cannot build the system call filter";
  static void check(int result) {
    if (result < 0) fail_call(kFailure, -result);
  }
  struct Release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };
  std::unique_ptr<void, Release> context_;
};

std::vector<sock_filter> build_filter(std::uint32_t architecture) {
  constexpr std::uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
  Filter filter(architecture);
  for (const std::string& name : split_spaces(kAllowed)) filter.add(SCMP_ACT_ALLOW, name.c_str());
  for (const std::string& name : split_spaces(kRefused)) filter.add(refuse, name.c_str());

  std::uint64_t namespaces = 0;
  for (const std::uint64_t flag : kNamespaces) {
    namespaces |= flag;
    filter.add(refuse, "clone", {kCloneFlags, SCMP_CMP_MASKED_EQ, flag, flag});
  }
  filter.add(SCMP_ACT_ALLOW, "clone", {kCloneFlags, SCMP_CMP_MASKED_EQ, namespaces, 0});
  for (const std::uint32_t personality : kPersonalities)
    filter.add(SCMP_ACT_ALLOW, "personality", {0, SCMP_CMP_EQ, personality, 0});
  for (const unsigned family : kRefusedFamilies)
    filter.add(refuse, "socket", {0, SCMP_CMP_MASKED_EQ, 0xffffffff, family});
  for (const Masked& families : kFamilies)
    filter.add(SCMP_ACT_ALLOW, "socket", {0, SCMP_CMP_MASKED_EQ, families.mask, families.value});
  return filter.program();
}

// The library can generate one program for all architectures, but that takes more than twice as long.
std::vector<sock_filter> build_filters() {
  std::vector<std::uint32_t> architectures{::seccomp_arch_native()};
  for (const Companions& companions : kCompanions)
    if (companions.native == architectures[0])
      std::copy_if(std::begin(companions.others), std::end(companions.others), std::back_inserter(architectures),
                   [](std::uint32_t other) { return other != 0; });
  std::vector<sock_filter> whole;
  for (const std::uint32_t architecture : architectures) {
    // The programs so far kill a thread only for a call from another architecture; instead, the next program must
    // handle such a call.
    for (std::size_t at = 0; at < whole.size(); ++at)
      if (whole[at].code == (BPF_RET | BPF_K) && whole[at].k == SECCOMP_RET_KILL_THREAD)
        whole[at] = BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(whole.size() - at - 1));
    const std::vector<sock_filter> program = build_filter(architecture);
    whole.insert(whole.end(), program.begin(), program.end());
  }
  return whole;
}

}  // namespace

const std::vector<sock_filter>& step_filter() {
  static const std::vector<sock_filter> program = build_filters();
  return program;
}

void apply_filter(const std::vector<sock_filter>& program) {
  const sock_fprog whole{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0) return;
  if (errno == ENOSYS || errno == EINVAL)
    fail_call("the kernel must support system call filters (CONFIG_SECCOMP_FILTER)");
  fail_call("cannot install the system call filter");
}

}  // namespace adaptdl::image
