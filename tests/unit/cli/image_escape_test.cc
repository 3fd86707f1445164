// Tests ways in which an image or a command may try to escape from the sandbox (docs/security.md).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/keyctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <functional>
#include <sstream>

#include "adaptdl/error.h"
#include "image_root.h"
#include "sandbox_probe.h"

namespace image_escape_test {

using namespace testing;
using Type = Mount::Type;

namespace {

const std::string kUp = "../../../../../../../../../../..";

// A step's root directory, beside files of the host that no step may read or change.
struct Machine : Steps {
  Machine() {
    write(outside() / "secret", "of the machine");
    write(outside() / "passwd", "outsider:x:1001:1001:::\n");
    write(outside() / "empty-file", "");
    fs::create_directories(outside() / "empty-directory");
    write(root() / "bin/probe", std::string(kSandboxProbe));
    chmod((root() / "bin/probe").c_str(), 0755);
    before_ = tree(outside());
  }
  fs::path outside() const { return path("outside"); }
  void check() const {
    CHECK(tree(outside()) == before_);
    CHECK(read(outside() / "secret") == "of the machine");
  }
  // Returns the output of the step, or the error that prevented its start.
  std::string attempt(const SandboxStep& step) {
    try {
      return run(step);
    } catch (const adaptdl::Error& error) {
      return error.what();
    }
  }
  std::string probe(const std::string& what) { return run("probe " + what); }

 private:
  std::vector<std::string> before_;
};

}  // namespace

TEST_CASE("a working directory cannot escape through /proc or ..") {
  Machine machine;
  std::vector<std::string> directories = {
      "/proc/self/cwd", "/proc/1/cwd", "/proc/1/root", "/proc/self/root/" + kUp, "/dev/fd", "/proc/self/task", kUp};
  for (int number = 3; number < 12; ++number) {
    directories.push_back(fmt::format("/proc/self/fd/{}", number));
    directories.push_back(fmt::format("/proc/1/fd/{}/{}{}", number, kUp, machine.outside().string()));
  }
  for (const std::string& directory : directories) {
    CAPTURE(directory);
    SandboxStep step = machine.step(
        fmt::format("cat {0}{1}/secret secret; echo x > {0}{1}/new; echo x > new", kUp, machine.outside().string()));
    step.working_directory = directory;
    CHECK(machine.attempt(step).find("of the machine") == std::string::npos);
  }
  machine.check();
}

TEST_CASE("an image's link through /proc cannot create a directory outside the image") {
  Machine machine;
  for (int number = 3; number < 12; ++number) {
    const std::string to = fmt::format("/proc/self/fd/{}/{}{}", number, kUp, machine.outside().string());
    CAPTURE(to);
    fs::create_symlink(to, machine.root() / "w");
    SandboxStep step = machine.step("cat ../../secret");
    step.working_directory = "/w/new/a";
    CHECK(machine.attempt(step).find("of the machine") == std::string::npos);
    fs::remove(machine.root() / "w");
  }
  machine.check();
}

TEST_CASE("users are looked up only in the image's own /etc/passwd, which must be a regular file") {
  Machine machine;
  for (int number = 3; number < 12; ++number) {
    const fs::path file = machine.root() / "etc/passwd";
    fs::remove(file);
    fs::create_symlink(fmt::format("/proc/self/fd/{}/{}{}/passwd", number, kUp, machine.outside().string()), file);
    SandboxStep step = machine.step("id -u");
    step.user = "outsider";
    const std::string message = machine.attempt(step);
    CHECK_MESSAGE(
        (message.find("user 'outsider' not found") == 0 || message.find("cannot read the image's /etc/passwd") == 0),
        message);
  }
  fs::remove(machine.root() / "etc/passwd");
  mkfifo((machine.root() / "etc/passwd").c_str(), 0644);
  SandboxStep step = machine.step("id -u");
  step.user = "root";
  CHECK(machine.attempt(step) == "cannot read the image's /etc/passwd: not a regular file");
}

TEST_CASE("RUN is rejected unless the image's /proc, /sys and /dev are directories") {
  for (const std::string name : {"proc", "sys", "dev"})
    for (const std::string to : {"/dev/p", "/", "/etc", "..", "nowhere/at/all", "/proc", "/sys", "/dev", ""}) {
      CAPTURE(name);
      CAPTURE(to);
      Machine machine;
      if (to.empty())
        write(machine.root() / name, "a file");
      else
        fs::create_symlink(to, machine.root() / name);
      CHECK(machine.attempt(machine.step("true")) == fmt::format("/{} in the image must be a directory", name));
    }
}

TEST_CASE("kernel settings are hidden or read-only even if the image provides /proc and /sys") {
  Machine machine;
  for (const char* path : {"proc/sys", "proc/kcore", "proc/self", "sys/firmware", "dev/null", "dev/pts", "dev/shm"})
    fs::create_directories(machine.root() / path);
  fs::create_symlink("/etc", machine.root() / "proc/irq");
  CHECK(machine.run("for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger "
                    "/proc/irq/default_smp_affinity /proc/pressure/cpu /sys/kernel/uevent_helper; "
                    "do [ -e $file ] && ( echo x > $file ) 2> /dev/null && echo $file; done; true") == "");
  CHECK(machine.run("cat /proc/kcore /proc/keys /proc/timer_list /proc/interrupts 2> /dev/null | wc -c") == "0\n");
  CHECK(machine.run("ls /proc/acpi /proc/scsi /sys/firmware /sys/kernel/debug /sys/kernel/tracing 2> /dev/null | "
                    "grep -v : | wc -w") == "0\n");
  CHECK(machine.probe("mount-proc") == "EPERM\n");
  CHECK(machine.probe("mount-namespace") == "EPERM\n");
}

TEST_CASE("a mount over /proc or /sys is rejected") {
  Machine machine;
  for (const char* target : {"/proc", "/proc/sys", "/proc/self", "/sys", "/sys/kernel", "/bin/../proc/1"}) {
    CAPTURE(target);
    SandboxStep step = machine.step("true");
    step.mounts = {mount_of(Type::kTmpfs, target)};
    const std::string message = machine.attempt(step);
    CHECK_MESSAGE(
        (message.find("which is reserved for the kernel") != std::string::npos || message.find("cannot mount at") == 0),
        message);
  }
}

TEST_CASE("cleanup of mount points does not follow links that the command put in their place") {
  Machine machine;
  const std::string outside = machine.outside();
  for (const std::string& to : {outside, "/proc/1/fd/3/" + kUp + outside, "/proc/1/fd/4/" + kUp + outside,
                                "/proc/1/root" + outside, std::string("/kept")}) {
    CAPTURE(to);
    SandboxStep step = machine.step(fmt::format(
        "mkdir -p /kept/empty-directory; touch /kept/empty-file; mv /a /b; ln -s {0} /a; mv /c /d; ln -s {0} /c", to));
    step.mounts = {mount_of(Type::kTmpfs, "/a/empty-directory"), mount_of(Type::kSecret, "/c/empty-file")};
    CHECK(machine.run(step) == "");
    CHECK(fs::exists(machine.upper() / "kept/empty-directory"));
    CHECK(fs::exists(machine.upper() / "kept/empty-file"));
    machine.check();
  }
}

TEST_CASE("an entry that a command puts in place of a mount point is kept") {
  Machine machine;
  SandboxStep step = machine.step("mv /a /b; mkdir -p /a/empty-directory; mv /c /d; mkdir /c; touch /c/empty-file");
  step.mounts = {mount_of(Type::kTmpfs, "/a/empty-directory"), mount_of(Type::kSecret, "/c/empty-file")};
  CHECK(machine.run(step) == "");
  CHECK(fs::exists(machine.upper() / "a/empty-directory"));
  CHECK(fs::exists(machine.upper() / "c/empty-file"));
}

TEST_CASE("device nodes of the image or the command cannot be opened") {
  Machine machine;
  CHECK(machine.run("grep ' /dev tmpfs ' /proc/mounts | grep -c nodev") == "1\n");
  for (const char* place : {"/dev/device", "/device", "/dev/shm/device"})
    CHECK(machine.run(fmt::format("mknod {0} c 1 5 && head -c 1 {0}", place)).find("exit code") != std::string::npos);
  if (mknod((machine.root() / "zero").c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0) return;
  CHECK(machine.run("head -c 1 /zero").find("Permission denied") != std::string::npos);
}

TEST_CASE("on the host network, a step can use TCP but not raw sockets or low ports") {
  Machine machine;
  CHECK(machine.probe("tcp-socket") == "done\n");
  CHECK(machine.probe("packet-socket") == "EPERM\n");
  CHECK(machine.probe("raw-socket") == "EPERM\n");
  SandboxStep step = machine.step("probe low-port");
  step.network = Run::Network::kNone;
  CHECK(machine.run(step) == "done\n");
  if (std::stoi(read("/proc/sys/net/ipv4/ip_unprivileged_port_start")) > 1023)
    CHECK(machine.probe("low-port") == "EACCES\n");
}

TEST_CASE("a command cannot read the builder's keyring") {
  Machine machine;
  const long key = syscall(SYS_add_key, "user", "adaptdl-test", "hunter2", 7, KEY_SPEC_SESSION_KEYRING);
  const std::string found = machine.probe("key");
  CHECK(found == "EPERM\n");
  CHECK(machine.probe("user-namespace") == "EPERM\n");
  if (key >= 0) syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_SESSION_KEYRING);
}

TEST_CASE("a step runs in a user namespace other than the machine's, with the builder's user IDs") {
  Machine machine;
  const std::string own = fs::read_symlink("/proc/self/ns/user");
  CHECK((machine.run("readlink /proc/self/ns/user") == own + "\n") == build_namespace.own_users);
  std::istringstream own_ids(read("/proc/self/uid_map")), ids(machine.run("cat /proc/self/uid_map"));
  for (unsigned long inside = 0, outside = 0, count = 0; own_ids >> inside >> outside >> count;) {
    unsigned long step_inside = 0, step_outside = 0, step_count = 0;
    ids >> step_inside >> step_outside >> step_count;
    CHECK(step_inside == inside);
    CHECK(step_outside == (build_namespace.own_users ? outside : inside));
    CHECK(step_count == count);
  }
}

TEST_CASE("a step does not see the name of the builder's control group") {
  Machine machine;
  CHECK(machine.run("grep -v ':/$' /proc/self/cgroup; true") == "");
}

// CVE-2019-5736: if an image's libraries ran the builder's program, a command could overwrite that program.
TEST_CASE("an image cannot run the builder's program as /proc/self/exe") {
  Machine machine;
  SandboxStep step = machine.step("");
  step.command = {"/proc/self/exe", "/bin/echo", "not the builder"};
  CHECK(machine.attempt(step) == "not the builder\n");
  write(machine.root() / "bin/script", "#!/proc/self/exe /bin/echo\n");
  chmod((machine.root() / "bin/script").c_str(), 0755);
  step = machine.step("");
  step.command = {"script"};
  CHECK(machine.attempt(step) == "/bin/script\n");
}

}  // namespace image_escape_test
