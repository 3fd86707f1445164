#include "image/sandbox/sandbox_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "image/base/failed_call.h"
#include "image/base/open_rooted.h"
#include "image/base/small_file.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/mount_points.h"
#include "image/sandbox/seccomp_filter.h"

namespace adaptdl::image {
namespace {

// Docker's default set without CAP_MKNOD and CAP_NET_RAW; with --network=none, CAP_NET_RAW is added.
// CAP_NET_BIND_SERVICE allows nothing on the machine's network, but without it, a file that has this capability cannot
// be executed.
constexpr unsigned kCapabilities[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER,           CAP_SETGID,
                                      CAP_SETUID, CAP_SETFCAP,      CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                                      CAP_KILL,   CAP_AUDIT_WRITE};

void drop_capabilities(bool own_network) {
  std::uint64_t kept = own_network ? std::uint64_t{1} << CAP_NET_RAW : 0;
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
  if (::syscall(SYS_capset, &header, data) != 0) fail_call("cannot drop capabilities");
}

void become_user(const UserIds& user, bool own_network) {
  // As in Docker and containerd, the user's own group is the first in the list. With a single ID, groups cannot be set,
  // and the previous groups are not mapped.
  std::vector<gid_t> groups{user.group};
  std::copy_if(user.groups.begin(), user.groups.end(), std::back_inserter(groups),
               [&](gid_t group) { return group != user.group; });
  if (::setgroups(groups.size(), groups.data()) != 0 && one_id_hint().empty()) fail_call("cannot set groups");
  if (::setresgid(user.group, user.group, user.group) != 0)
    fail_call(fmt::format("cannot switch to group {}{}", user.group, one_id_hint()));
  drop_capabilities(own_network);
  if (::setresuid(user.user, user.user, user.user) != 0)
    fail_call(fmt::format("cannot switch to user {}{}", user.user, one_id_hint()));
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

Fd open_root() {
  Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) fail_call("/");
  return root;
}

void enter_working_directory(const std::string& path) {
  const Fd directory = open_rooted(open_root().get(), path, O_PATH | O_DIRECTORY, Links::kInRoot);
  char inside[PATH_MAX];
  if (!directory || ::fchdir(directory.get()) != 0 || ::getcwd(inside, sizeof inside) == nullptr)
    fail_call(fmt::format("cannot enter the working directory '{}'", one_line(path, 200)));
}

}  // namespace

UserIds step_user(const SandboxStep& step) {
  const Fd root = open_root();
  const auto text = [&](const std::string& file) {
    return read_small_file(open_rooted(root.get(), file, O_RDONLY | O_NONBLOCK, Links::kInRoot),
                           fmt::format("the image's /{}", file))
        .value_or("");
  };
  return find_user(step.user, text("etc/passwd"), text("etc/group"));
}

void make_working_directory(const SandboxStep& step) {
  std::vector<std::string> made;
  if (!find_or_make(open_root().get(), step.working_directory, true, made, false).file)
    fail_call(fmt::format("cannot create the working directory '{}'", one_line(step.working_directory, 200)));
}

void become_command(const SandboxStep& step, const UserIds& user, const CommandFiles& files) {
  constexpr int kStarterFd = kTroubleFd + 1;
  ::setsid();
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || ::dup2(input, 0) < 0 || ::dup2(files.output, 1) < 0 || ::dup2(files.output, 2) < 0)
    fail_call("cannot redirect standard input");
  // Close all other descriptors before resolving a path in the image. The two descriptors move to high numbers first,
  // since each of them may currently have the number that the other one will get.
  const int trouble = ::fcntl(files.trouble, F_DUPFD, 100), starter = ::fcntl(files.starter, F_DUPFD, 100);
  if (::dup2(trouble, kTroubleFd) < 0 || ::dup3(starter, kStarterFd, O_CLOEXEC) < 0 ||
      ::syscall(SYS_close_range, kStarterFd + 1U, ~0U, 0) != 0)
    fail_call("cannot close file descriptors");
  enter_working_directory(step.working_directory);
  ::umask(022);
  apply_filter(step_filter());
  become_user(user, step.network == Run::Network::kNone);
  reset_signals();

  std::vector<std::string> words = step.command, variables = environment_of(step, user);
  words.insert(words.begin(), "step-exec");
  ::execveat(kStarterFd, "", pointers(words).data(), pointers(variables).data(), AT_EMPTY_PATH);
  fail_call("cannot start the command");
}

}  // namespace adaptdl::image
