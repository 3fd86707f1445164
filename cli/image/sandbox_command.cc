#include "image/sandbox_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "adaptdl/error.h"
#include "image/build_namespace.h"
#include "image/failed_call.h"
#include "image/small_file.h"
#include "image/text_parts.h"

namespace adaptdl::image {
namespace {

// Docker's.
constexpr unsigned kCapabilities[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER,           CAP_MKNOD,      CAP_NET_RAW, CAP_SETGID,
    CAP_SETUID, CAP_SETFCAP,      CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_KILL,    CAP_AUDIT_WRITE};

void drop_capabilities() {
  std::uint64_t kept = 0;
  for (const unsigned capability : kCapabilities) kept |= std::uint64_t{1} << capability;
  for (unsigned capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability)
    if ((kept >> capability & 1) == 0) ::prctl(PR_CAPBSET_DROP, capability);
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) fail_call("cannot read capabilities");
  for (int half = 0; half < 2; ++half) {
    data[half].permitted &= static_cast<std::uint32_t>(kept >> (32 * half));
    data[half].effective = data[half].permitted;
    data[half].inheritable = 0;
  }
  if (::syscall(SYS_capset, &header, data) != 0) fail_call("cannot give capabilities up");
}

void become_user(const UserIds& user) {
  // As in Docker and containerd, the user's own group is the first of them. Of one id alone groups cannot be set, and
  // those of before are nobody's.
  std::vector<gid_t> groups{user.group};
  std::copy_if(user.groups.begin(), user.groups.end(), std::back_inserter(groups),
               [&](gid_t group) { return group != user.group; });
  if (::setgroups(groups.size(), groups.data()) != 0 && one_id_hint().empty()) fail_call("cannot set groups");
  if (::setresgid(user.group, user.group, user.group) != 0)
    fail_call(fmt::format("cannot become group {}{}", user.group, one_id_hint()));
  drop_capabilities();
  if (::setresuid(user.user, user.user, user.user) != 0)
    fail_call(fmt::format("cannot become user {}{}", user.user, one_id_hint()));
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::vector<std::string> environment_of(const SandboxStep& step, const UserIds& user) {
  std::vector<std::string> result;
  bool has_home = false;
  for (const Pair& pair : step.environment) {
    has_home |= pair.name == "HOME";
    result.push_back(pair.name + "=" + pair.value);
  }
  if (!has_home) result.push_back("HOME=" + user.home);
  for (const StepMount& mount : step.mounts)
    if (mount.mount.type == Mount::Type::kSecret && mount.mount.environment)
      result.push_back(*mount.mount.environment + "=" + mount.content);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void fail_to_run(const std::string& program, int error) {
  const bool there = ::access(program.c_str(), F_OK) == 0;
  std::string why = std::strerror(error);
  if (error == ENOENT && there)
    why = "its interpreter is not in the image";
  else if (error == ENOENT)
    why = "it is not in the image";
  else if (error == ENOEXEC)
    why = "it is no program for this machine; other platforms' take qemu-user and binfmt_misc";
  throw Error(fmt::format("cannot run {}: {}", program, why));
}

}  // namespace

UserIds step_user(const SandboxStep& step) {
  return find_user(step.user, read_small_file("/etc/passwd", "the image's /etc/passwd").value_or(""),
                   read_small_file("/etc/group", "the image's /etc/group").value_or(""));
}

void become_command(const SandboxStep& step, const UserIds& user, int output) {
  ::setsid();
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || ::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(output, 2) < 0) fail_call("standard input");
  if (!step.working_directory.empty() && ::chdir(step.working_directory.c_str()) != 0)
    fail_call(step.working_directory);
  ::umask(022);
  become_user(user);
  reset_signals();
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);

  std::vector<std::string> words = step.command, variables = environment_of(step, user);
  const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  if (words[0].find('/') != std::string::npos) {
    ::execve(arguments[0], arguments.data(), environment.data());
    fail_to_run(words[0], errno);
  }
  std::string path;
  for (const Pair& pair : step.environment)
    if (pair.name == "PATH") path = pair.value;
  int error = ENOENT;
  for (const std::string& directory : split(path, ':')) {
    const std::string program = (directory.empty() ? "." : directory) + "/" + words[0];
    ::execve(program.c_str(), arguments.data(), environment.data());
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (error == ENOEXEC) break;
  }
  fail_to_run(words[0], error);
}

}  // namespace adaptdl::image
