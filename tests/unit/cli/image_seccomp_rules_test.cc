// Tests the rules of the filter for a step's system calls, by evaluating the filter for all calls and architectures.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text_parts.h"
#include "image/sandbox/seccomp_filter.h"
#include "image_root.h"
#include "image_seccomp_support.h"

namespace image_seccomp_rules_test {

using namespace testing;
using image_seccomp_support::kX32;

namespace {

#ifdef __x86_64__
const std::vector<std::uint32_t> architectures{SCMP_ARCH_X86_64, SCMP_ARCH_X86, SCMP_ARCH_X32};
#elif defined(__aarch64__)
const std::vector<std::uint32_t> architectures{SCMP_ARCH_AARCH64, SCMP_ARCH_ARM};
#else
const std::vector<std::uint32_t> architectures{seccomp_arch_native()};
#endif

// Interprets a BPF program as the kernel does.
std::uint32_t evaluate(const std::vector<sock_filter>& program, const seccomp_data& data) {
  std::uint32_t value = 0;
  for (std::size_t at = 0;; ++at) {
    const sock_filter& step = program.at(at);
    const auto jump = [&](bool holds) { at += holds ? step.jt : step.jf; };
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        REQUIRE(step.k + sizeof value <= sizeof data);
        std::memcpy(&value, reinterpret_cast<const char*>(&data) + step.k, sizeof value);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        value &= step.k;
        break;
      case BPF_JMP | BPF_JA:
        at += step.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(value == step.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(value > step.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(value >= step.k);
        break;
      case BPF_RET | BPF_K:
        return step.k;
      default:
        throw std::runtime_error(fmt::format("instruction {:#x}", step.code));
    }
  }
}

std::string result_of(std::uint32_t architecture, long number, std::uint64_t first = 0) {
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = architecture == SCMP_ARCH_X32 ? AUDIT_ARCH_X86_64 : architecture;
#ifdef __s390__
  data.args[1] = first;
#else
  data.args[0] = first;
#endif
  const std::uint32_t result = evaluate(step_filter(), data);
  switch (result & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
      return "allowed";
    case SECCOMP_RET_ERRNO:
      return strerrorname_np(static_cast<int>(result & SECCOMP_RET_DATA));
    case SECCOMP_RET_KILL_THREAD:
      return "killed";
    default:
      return "something else";
  }
}

// Returns libseccomp's name for a call; "" if libseccomp does not know the number.
std::string name_of(std::uint32_t architecture, int number) {
  const std::unique_ptr<char, decltype(&std::free)> name(seccomp_syscall_resolve_num_arch(architecture, number),
                                                         std::free);
  return name ? name.get() : "";
}

// Returns all call numbers in use, and some unused ones.
std::vector<int> numbers_of(std::uint32_t architecture) {
  const int first = architecture == SCMP_ARCH_X32 ? static_cast<int>(kX32) : 0;
  std::vector<int> numbers(601);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<int>(i);
  return numbers;
}

std::string result_of(std::uint32_t architecture, const std::string& name, std::uint64_t first = 0) {
  // libseccomp's own lookup by name fails for the calls that i386 also offers through socketcall.
  for (const int number : numbers_of(architecture))
    if (name_of(architecture, number) == name) return result_of(architecture, number, first);
  return "no such call";
}

// The profile used by Podman and buildah, as installed by a Debian package.
class Published {
 public:
  static constexpr const char* kFile = "/usr/share/containers/seccomp.json";
  explicit Published(const std::string& text) : profile_(nlohmann::json::parse(text)) {}

  // Returns whether a container with the capabilities of a step may make the call with all arguments zero.
  bool allows(const std::string& name) const {
    for (const nlohmann::json& rule : profile_.at("syscalls"))
      if (rule.at("action") == "SCMP_ACT_ALLOW" && names(rule, "names", name) && concerns_steps(rule) &&
          concerns_zeros(rule))
        return true;
    return false;
  }

 private:
  static bool names(const nlohmann::json& object, const char* list, const std::string& name) {
    if (!object.contains(list) || object[list].is_null()) return false;
    return std::find(object[list].begin(), object[list].end(), name) != object[list].end();
  }
  static bool concerns_steps(const nlohmann::json& rule) {
    static const std::map<std::string, std::string> kMachines{{"x86_64", "amd64"}, {"aarch64", "arm64"}};
    utsname system{};
    uname(&system);
    const auto machine = kMachines.find(system.machine);
    const nlohmann::json& includes = rule.at("includes");
    if (includes.contains("arches") &&
        !names(includes, "arches", machine == kMachines.end() ? system.machine : machine->second))
      return false;
    for (const nlohmann::json& capability : includes.value("caps", nlohmann::json::array()))
      if (!has(capability)) return false;
    for (const nlohmann::json& capability : rule.at("excludes").value("caps", nlohmann::json::array()))
      if (has(capability)) return false;
    return true;
  }
  static bool has(const std::string& capability) {
    return capability == "CAP_AUDIT_WRITE" || capability == "CAP_SYS_CHROOT";
  }
  static bool concerns_zeros(const nlohmann::json& rule) {
    if (!rule.contains("args") || rule["args"].is_null()) return true;
    for (const nlohmann::json& argument : rule["args"])
      if ((argument.at("value") == 0) != (argument.at("op") == "SCMP_CMP_EQ")) return false;
    return true;
  }

  nlohmann::json profile_;
};

// The calls for which a step's filter differs from Podman's, and the reasons.
const std::map<std::string, const char*> kDifferences{
    {"fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root setns umount umount2 unshare",
     "Docker refuses them without CAP_SYS_ADMIN; Podman leaves that to the kernel"},
    {"fanotify_init", "allowed by newer versions of Podman, refused by Docker without CAP_SYS_ADMIN"},
    {"reboot syslog", "Docker refuses them without CAP_SYS_BOOT and CAP_SYSLOG"},
    {"keyctl", "keyrings are shared with the machine"},
    {"clone3", "its flags are in memory, which a filter cannot read"},
    {"syscall timerfd", "newer versions of Podman refuse them: the one hides a call, the other never existed"},
    {"readdir sigaction sigpending sigsuspend", "newer versions of Podman refuse them; old 32-bit programs call them"},
    {"fchmodat2 futex_requeue futex_wait futex_waitv futex_wake riscv_flush_icache swapcontext",
     "newer than the version in Debian 12; Docker and newer versions of Podman allow them"},
};
bool may_differ(const std::string& name) {
  for (const auto& [names, why] : kDifferences)
    for (const std::string& word : adaptdl::split_spaces(names))
      if (word == name) return true;
  return false;
}

}  // namespace

TEST_CASE("rules that depend on the arguments of a system call are applied on each architecture") {
  for (const std::uint32_t architecture : architectures) {
    CAPTURE(architecture);
    CHECK(result_of(architecture, "clone", SIGCHLD) == "allowed");
    CHECK(result_of(architecture, "clone",
                    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                        CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID) == "allowed");
    CHECK(result_of(architecture, "clone", CLONE_VM | CLONE_VFORK | SIGCHLD) == "allowed");
    for (const std::uint64_t flag :
         {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET}) {
      CHECK(result_of(architecture, "clone", flag | SIGCHLD) == "EPERM");
      CHECK(result_of(architecture, "clone", flag | CLONE_VM | CLONE_NEWUSER) == "EPERM");
    }
#ifndef __s390__
    for (const std::uint64_t value : {0x0, 0x8, 0x20000, 0x20008})
      CHECK(result_of(architecture, "personality", value) == "allowed");
    CHECK(result_of(architecture, "personality", 0xffffffff) == "allowed");
    CHECK(result_of(architecture, "personality", READ_IMPLIES_EXEC) == "ENOSYS");
    CHECK(result_of(architecture, "personality", ADDR_NO_RANDOMIZE) == "ENOSYS");
    for (int family = 0; family < 64; ++family)
      CHECK(result_of(architecture, "socket", static_cast<unsigned>(family)) ==
            std::string(family == AF_ALG || family == AF_VSOCK ? "EPERM" : "allowed"));
    // The kernel reads only the lower 32 bits.
    CHECK(result_of(architecture, "socket", 1ULL << 32 | AF_VSOCK) == "EPERM");
    CHECK(result_of(architecture, "socket", 1ULL << 32 | AF_INET) == "allowed");
#endif
    CHECK(result_of(architecture, "clone", 1ULL << 32 | CLONE_NEWUSER) == "EPERM");
    CHECK(result_of(architecture, "unshare") == "EPERM");
    CHECK(result_of(architecture, "clone3") == "ENOSYS");
  }
#ifdef __x86_64__
  for (int call = 1; call <= 20; ++call)
    CHECK(result_of(SCMP_ARCH_X86, "socketcall", static_cast<unsigned>(call)) == "allowed");
#endif
}

TEST_CASE("unknown system calls fail with ENOSYS, and programs of other architectures are killed") {
  for (const std::uint32_t architecture : architectures) {
    for (const int number : numbers_of(architecture))
      if (name_of(architecture, number).empty()) CHECK(result_of(architecture, number) == "ENOSYS");
    CHECK(result_of(architecture, -1) == "ENOSYS");
  }
  CHECK(result_of(AUDIT_ARCH_PARISC, SYS_getpid) == "killed");
}

TEST_CASE("the allowed calls match Podman's profile on each architecture, except for known differences") {
  if (!fs::exists(Published::kFile)) {
    MESSAGE("skipped: ", std::string(Published::kFile),
            " is not here; the package golang-github-containers-common has it");
    return;
  }
  const Published published(read(Published::kFile));
  for (const std::uint32_t architecture : architectures) {
    int compared = 0;
    for (const int number : numbers_of(architecture)) {
      const std::string name = name_of(architecture, number);
      if (name.empty() || may_differ(name)) continue;
      CAPTURE(architecture);
      CAPTURE(name);
      const std::string result = result_of(architecture, number);
      CHECK((result == "allowed") == published.allows(name));
      CHECK((result == "allowed" || result == "EPERM" || result == "ENOSYS"));
      ++compared;
    }
    CHECK(compared > 250);
  }
}

}  // namespace image_seccomp_rules_test
