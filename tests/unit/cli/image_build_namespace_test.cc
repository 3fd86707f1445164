// Tests what a build reports, and what it can still do, when the kernel or a container forbids namespaces.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "another_process.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/sandbox.h"
#include "refuse_system_calls.h"
#include "temporary_directory.h"

namespace image_build_namespace_test {

using namespace adaptdl::image;

namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  if (!(stream << text << std::flush)) throw std::runtime_error("cannot write " + file.string());
}

void must(bool done, const char* what) {
  if (!done) throw std::runtime_error(what);
}

// Drops CAP_SYS_ADMIN, which root in a container does not have.
void drop_administration() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  must(syscall(SYS_capget, &header, data) == 0, "capget");
  data[0].permitted &= ~(1u << CAP_SYS_ADMIN);
  data[0].effective = data[0].permitted;
  must(syscall(SYS_capset, &header, data) == 0, "capset");
}

// Enters a user namespace, so that changes to its settings do not affect other processes.
void enter_own_user_namespace() {
  const uid_t user = getuid();
  must(unshare(CLONE_NEWUSER) == 0, "unshare");
  prctl(PR_SET_DUMPABLE, 1);
  write("/proc/self/setgroups", "deny");
  write("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
}

void forbid_unshare() { must(testing::refuse_system_calls({SYS_unshare}, EPERM), "seccomp"); }

}  // namespace

TEST_CASE("an operation that needs the build namespace fails if the process has not entered it") {
  CHECK(testing::in_another_process([] {
          require_build_namespace("execute RUN");
          return std::string("nothing is wrong");
        }) == "error: cannot execute RUN: the build namespace was not entered");
}

TEST_CASE("entering the build namespace a second time returns the first result") {
  CHECK(testing::in_another_process([] {
          const BuildNamespace& first = enter_build_namespace();
          const fs::path place = fs::read_symlink("/proc/self/ns/mnt");
          return std::string(
              &first == &enter_build_namespace() && place == fs::read_symlink("/proc/self/ns/mnt") ? "same" : "new");
        }) == "same");
}

TEST_CASE("if user namespaces are disabled, the error names the sysctl setting") {
  CHECK(testing::in_another_process([] {
          enter_own_user_namespace();
          write("/proc/sys/user/max_user_namespaces", "0");
          drop_administration();
          enter_build_namespace();
          require_build_namespace("execute RUN");
          return std::string("nothing is wrong");
        }) ==
        "error: cannot execute RUN: user namespaces are disabled; have an administrator run: sysctl "
        "user.max_user_namespaces=15000");
}

TEST_CASE("if a seccomp profile forbids namespaces, the error names the container option") {
  const std::string why = testing::in_another_process([] {
    forbid_unshare();
    return enter_build_namespace().obstacle;
  });
  CHECK(why.find("a container's seccomp profile forbids namespaces; start the container with --security-opt") == 0);
}

TEST_CASE("if namespaces are forbidden, the process keeps its user and user namespace") {
  CHECK(testing::in_another_process([] {
          const uid_t user = getuid();
          const fs::path before = fs::read_symlink("/proc/self/ns/user");
          forbid_unshare();
          enter_build_namespace();
          return std::string(user == getuid() && before == fs::read_symlink("/proc/self/ns/user") ? "same" : "new");
        }) == "same");
}

TEST_CASE("without subordinate IDs, the message explains how to add them") {
  if (getuid() == 0) return;
  const std::string why = testing::in_another_process([] { return enter_build_namespace().one_id; });
  CHECK((why.empty() || why.find("usermod --add-subuids 100000-165535") != std::string::npos));
}

TEST_CASE("root without CAP_SYS_ADMIN can mount file systems and change file owners in the build namespace") {
  if (getuid() != 0) return;
  testing::TemporaryDirectory directory;
  CHECK(testing::in_another_process([&] {
          drop_administration();
          const BuildNamespace& found = enter_build_namespace();
          const fs::path file = directory.path() / "file";
          write(file, "x");
          must(chown(file.c_str(), 500, 60000) == 0, "chown");
          must(mount("tmpfs", directory.path().c_str(), "tmpfs", 0, nullptr) == 0, "mount");
          return found.obstacle + found.one_id;
        }) == "");
  struct stat status {};
  REQUIRE(stat((directory.path() / "file").c_str(), &status) == 0);
  CHECK(status.st_uid == 500);
  CHECK(status.st_gid == 60000);
}

TEST_CASE("a step has a working /proc even if the build runs in a container where parts of /proc are hidden") {
  if (getuid() != 0) return;
  testing::TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::all);
  fs::create_directory(directory.path() / "root");
  fs::copy_file("/usr/bin/busybox", directory.path() / "root/busybox");
  REQUIRE(chown((directory.path() / "root").c_str(), 61234, 61234) == 0);
  CHECK(testing::in_another_process([&] {
          must(unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "unshare");
          must(mount("tmpfs", "/proc/bus", "tmpfs", MS_RDONLY, nullptr) == 0, "hide");
          must(setresgid(61234, 61234, 61234) == 0 && setresuid(61234, 61234, 61234) == 0, "setresuid");
          must(enter_build_namespace().obstacle.empty(), "namespace");
          SandboxStep step;
          step.root = {{directory.path() / "root"}, directory.path() / "upper", directory.path() / "work"};
          step.scratch = directory.path() / "scratch";
          fs::create_directory(step.scratch);
          step.command = {"/busybox", "sh", "-c", "read name word < /proc/self/status; echo $name $word"};
          std::string text;
          const StepEnd end = run_in_sandbox(step, [&](std::string_view line) { text += line; }, {});
          return text + ", " + end.text();
        }) == "Name: busybox, exit code 0");
}

}  // namespace image_build_namespace_test
