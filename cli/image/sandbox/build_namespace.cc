#include "image/sandbox/build_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "adaptdl/error.h"
#include "image/base/small_file.h"
#include "image/layer/id_map.h"

namespace adaptdl::image {
namespace {

std::optional<BuildNamespace> probed;

// Creates and enters namespaces whose mounts do not propagate to other namespaces. Returns errno, or 0.
int enter(int flags) {
  if (::unshare(flags) != 0) return errno;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : errno;
}

// Tries enter() in a child process, since a partial success cannot be undone. Returns errno, or 0.
int try_enter(int flags) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(enter(flags));
  int status = 0;
  if (child < 0) return errno;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

// Maps only the process's own user and group IDs, to root. Keeps maps that newuidmap or newgidmap has written.
void map_one_id(uid_t user, gid_t group) {
  const auto write = [](const char* file, const std::string& text) {
    const int fd = ::open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    [[maybe_unused]] const ssize_t count = ::write(fd, text.data(), text.size());
    ::close(fd);
  };
  if (text_of_file("/proc/self/gid_map").empty()) {
    write("/proc/self/setgroups", "deny");
    write("/proc/self/gid_map", fmt::format("0 {} 1", group));
  }
  if (text_of_file("/proc/self/uid_map").empty()) write("/proc/self/uid_map", fmt::format("0 {} 1", user));
}

BuildNamespace enter_user_namespace() {
  constexpr int kFlags = CLONE_NEWUSER | CLONE_NEWNS;
  if (const int error = try_enter(kFlags); error != 0) return {why_no_user_namespace(error), "", false};
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  IdMapper mapper;
  if (const int error = enter(kFlags); error != 0) return {why_no_user_namespace(error), "", false};
  // Changing IDs clears the dumpable flag; without that flag, the process's files in /proc belong to another user.
  ::prctl(PR_SET_DUMPABLE, 1);
  BuildNamespace result{"", mapper.map(), true};
  if (!result.one_id.empty()) map_one_id(user, group);
  if (::geteuid() != 0 || ::getegid() != 0) result.obstacle = "cannot set the IDs in the user namespace";
  return result;
}

}  // namespace

const BuildNamespace& enter_build_namespace() {
  if (!probed)
    probed = ::geteuid() == 0 && try_enter(CLONE_NEWNS) == 0 && enter(CLONE_NEWNS) == 0 ? BuildNamespace()
                                                                                        : enter_user_namespace();
  return *probed;
}

void require_build_namespace(const std::string& what) {
  const std::string why = probed ? probed->obstacle : "the build namespace was not entered";
  if (!why.empty()) throw Error(fmt::format("cannot {}: {}", what, why));
}

bool has_own_users() { return probed && probed->own_users; }

std::string why_no_user_namespace(int error) {
  const auto is = [](const char* file, char value) { return text_of_file(file).substr(0, 1) == std::string(1, value); };
  if (is("/proc/sys/user/max_user_namespaces", '0'))
    return "user namespaces are disabled; have an administrator run: sysctl user.max_user_namespaces=15000";
  if (error == ENOSPC)
    return "the kernel's limit on user or mount namespaces has been reached; see sysctl user.max_user_namespaces and "
           "user.max_mnt_namespaces";
  if (is("/proc/sys/kernel/unprivileged_userns_clone", '0'))
    return "only root may create user namespaces; have an administrator run: sysctl kernel.unprivileged_userns_clone=1";
  if (is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1'))
    return "AppArmor denies user namespaces to programs without a profile; have an administrator run: sysctl "
           "kernel.apparmor_restrict_unprivileged_userns=0";
  if (text_of_file("/proc/self/status").find("Seccomp:\t2") != std::string::npos)
    return "a container's seccomp profile forbids namespaces; start the container with --security-opt "
           "seccomp=unconfined --security-opt apparmor=unconfined, in Kubernetes with the seccompProfile and "
           "appArmorProfile Unconfined, or as privileged";
  return fmt::format("the kernel does not allow user and mount namespaces: {}", std::strerror(error));
}

std::string one_id_hint() {
  return probed && !probed->one_id.empty() ? fmt::format(" (all files belong to one user here: {})", probed->one_id)
                                           : "";
}

}  // namespace adaptdl::image
