// Tests what a step's command sees and leaves behind. Runs as root, and as users with and without subordinate IDs.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <string>
#include <thread>

#include "adaptdl/error.h"
#include "error_of.h"
#include "http/http.h"
#include "image_root.h"

namespace image_sandbox_test {

using namespace testing;
using namespace std::chrono_literals;
using adaptdl::Error;
using ::testing::error_of;

namespace {

bool all_ids() { return build_namespace.one_id.empty(); }

// Returns the number of processes on this machine whose command line contains the text.
int processes_with(const std::string& text) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string line;
    std::getline(file, line);  // unlike stream iterators, does not throw if the process has just exited
    if (line.find(text) != std::string::npos) ++count;
  }
  return count;
}
// Returns an argument of sleep that no other process on this machine uses.
std::string own_seconds(int number) { return std::to_string(1000000000 + 10 * getpid() + number); }

bool soon(const std::function<bool()>& holds, std::chrono::milliseconds patience = 60s) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!holds())
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    else
      std::this_thread::sleep_for(5ms);
  return true;
}

// Returns whether sysfs can be mounted, which is not permitted in a container that hides parts of its own /sys.
bool may_mount_sys(const fs::path& at) {
  fs::create_directory(at);
  const pid_t child = fork();
  if (child == 0)
    _exit(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                  mount("sysfs", at.c_str(), "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0
              ? 0
              : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

}  // namespace

TEST_CASE("the user of a build is root in the build namespace") {
  REQUIRE(build_namespace.obstacle == "");
  CHECK(getuid() == 0);
  CHECK(getgid() == 0);
}

TEST_CASE("the upper directory contains exactly the changes that a command makes") {
  Steps steps;
  CHECK(steps.run("echo hello > /hello; rm /etc/group; mkdir -p /a/b") == "");
  CHECK(tree(steps.upper()) == std::vector<std::string>{"a/", "a/b/", "etc/", "etc/group", "hello"});
  CHECK(read(steps.upper() / "hello") == "hello\n");
  struct stat status {};
  REQUIRE(lstat((steps.upper() / "etc/group").c_str(), &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  CHECK(status.st_rdev == 0);
  CHECK(read(steps.root() / "etc/group").starts_with("root"));
}

TEST_CASE("the upper directory stays empty if a step changes nothing, even if it has mounts") {
  Steps steps;
  SandboxStep step = steps.step("true");
  step.mounts = {mount_of(Mount::Type::kSecret, "/run/secrets/key"), mount_of(Mount::Type::kCache, "/etc/cache/deep"),
                 mount_of(Mount::Type::kTmpfs, "/bin/tmp"), mount_of(Mount::Type::kBind, "/etc/ssl/some.conf")};
  write(steps.path("conf/some.conf"), "x");
  step.mounts[3].mount.source = "some.conf";
  step.mounts[3].from = {steps.path("conf")};
  const auto before = fs::last_write_time(steps.root() / "etc");
  CHECK(steps.run(step) == "");
  CHECK(tree(steps.upper()).empty());
  CHECK(fs::last_write_time(steps.upper()) == fs::last_write_time(steps.root()));
  CHECK(fs::last_write_time(steps.root() / "etc") == before);
}

TEST_CASE("changes to a directory that contains a mount point are kept") {
  Steps steps;
  SandboxStep step = steps.step("echo x > /run/secrets/kept; chmod 700 /etc");
  step.mounts = {mount_of(Mount::Type::kSecret, "/run/secrets/key"), mount_of(Mount::Type::kTmpfs, "/etc/t")};
  CHECK(steps.run(step) == "");
  CHECK(tree(steps.upper()) == std::vector<std::string>{"etc/", "run/", "run/secrets/", "run/secrets/kept"});
}

TEST_CASE("the root directory keeps its mode in the overlay") {
  Steps steps;
  chmod(steps.root().c_str(), 0711);
  CHECK(steps.run("stat -c %a /") == "711\n");
}

TEST_CASE("a failed command is reported with its exit code or signal") {
  Steps steps;
  CHECK(steps.run("exit 3") == "exit code 3");
  CHECK(steps.run("kill -9 $$") == "killed by signal 9 (Killed)");
  CHECK(steps.run("echo one; echo two >&2; printf three") == "one\ntwo\nthree\n");
}

TEST_CASE("the error for a command that is missing or cannot run gives the reason") {
  Steps steps;
  SandboxStep step = steps.step("");
  step.command = {"nothing", "x"};
  CHECK(error_of([&] { steps.run(step); }) == "cannot run 'nothing': not found in the image");
  step = steps.step("");
  write(steps.root() / "bin/script", "#!/usr/bin/python\n");
  chmod((steps.root() / "bin/script").c_str(), 0755);
  step.command = {"script"};
  CHECK(error_of([&] { steps.run(step); }).find("cannot run 'script': ") == 0);
  step = steps.step("");
  step.command = {"/bin/script"};
  CHECK(error_of([&] { steps.run(step); }) == "cannot run '/bin/script': its interpreter is not in the image");
}

TEST_CASE("the environment contains the given variables and the user's HOME") {
  Steps steps;
  SandboxStep step = steps.step("env | sort");
  step.environment.push_back({"A", "b c"});
  CHECK(steps.run(step) == "A=b c\nHOME=/root\nPATH=/bin\nPWD=/\nSHLVL=1\n");
}

TEST_CASE("a step does not see the host's processes and files") {
  Steps steps;
  CHECK(steps.run("ls / | sort | tr '\\n' ' '; true").find("tmp") == std::string::npos);
  CHECK(steps.run("[ $(ls -d /proc/[0-9]* | wc -l) -lt 7 ] && echo few") == "few\n");
  CHECK(steps.run("hostname") == "build\n");
  CHECK(steps.run("ls /proc/self/fd | wc -l") == "4\n");
  CHECK(steps.run("cat /proc/1/environ").find("denied") != std::string::npos);
  CHECK(steps.run("umask; cat /proc/self/stat | cut -d' ' -f6; echo $$") == "0022\n2\n2\n");
}

TEST_CASE("steps have Docker's capabilities except MKNOD and, on the host network, NET_RAW; /proc/sys is read-only") {
  Steps steps;
  CHECK(steps.run("grep -E 'CapBnd|CapEff|CapInh|NoNewPrivs' /proc/self/status") ==
        "CapInh:\t0000000000000000\nCapEff:\t00000000a00405fb\nCapBnd:\t00000000a00405fb\nNoNewPrivs:\t0\n");
  SandboxStep lonely = steps.step("grep CapBnd /proc/self/status");
  lonely.network = Run::Network::kNone;
  CHECK(steps.run(lonely) == "CapBnd:\t00000000a00425fb\n");
  CHECK(steps.run("echo x > /proc/sys/kernel/hostname").find("Read-only") != std::string::npos);
  CHECK(steps.run("echo h > /proc/sysrq-trigger").find("exit code") != std::string::npos);
  CHECK(steps.run("touch /sys/x").find("exit code") != std::string::npos);
  CHECK(steps.run("mount -t tmpfs tmpfs /bin").find("exit code") != std::string::npos);
  CHECK(steps.run("cat /proc/interrupts; ls /sys/firmware") == "");
}

TEST_CASE("standard devices are available, and no other device can be opened") {
  Steps steps;
  CHECK(steps.run("echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c") == "3\n3\n");
  CHECK(steps.run("echo x > /dev/full").find("exit code") != std::string::npos);
  CHECK(steps.run("ls /dev | tr '\\n' ' '; echo") ==
        "core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero \n");
  CHECK(steps.run("echo y > /dev/shm/x; cat /dev/shm/x; readlink /dev/stdin; cat < /dev/stdin") ==
        "y\n/proc/self/fd/0\n");
  CHECK(steps.run("mknod /d c 1 5 && head -c 1 /d").find("exit code") != std::string::npos);
}

TEST_CASE("a step runs as a user given by name or number, with its groups and home") {
  Steps steps;
  SandboxStep step = steps.step("id -u; id -g; id -G; echo $HOME; echo e > /dev/stderr");
  step.user = "maker";
  if (!all_ids()) {
    CHECK(error_of([&] { steps.run(step); }).find("cannot switch to group 501 (all files belong to one user here: ") ==
          0);
    return;
  }
  CHECK(steps.run(step) == "500\n501\n501 502\n/home/maker\ne\n");
  step = steps.step("id -u; id -g; id -G; echo $HOME");
  step.user = "70:tools";
  CHECK(steps.run(step) == "70\n502\n502\n/\n");
  for (const auto& [user, groups] : {std::pair{"maker", "501 502"}, {"70:tools", "502"}, {"70", "0"}, {"", "0"}}) {
    step = steps.step("grep Groups /proc/self/status");
    step.user = user;
    CHECK(steps.run(step) == fmt::format("Groups:\t{} \n", groups));
  }
  step = steps.step("grep CapEff /proc/self/status; touch /x");
  step.user = "70";
  CHECK(steps.run(step).starts_with("CapEff:\t0000000000000000\n"));
  step = steps.step("");
  step.user = "nobody";
  CHECK(error_of([&] { steps.run(step); }) == "user 'nobody' not found in the image's /etc/passwd");
}

TEST_CASE("file owners are stored with the image's IDs, and setuid programs work") {
  if (!all_ids()) return;
  Steps steps;
  CHECK(steps.run("touch /written; chmod 4755 /written; echo x >> /written; stat -c %a /written") == "755\n");
  CHECK(steps.run("echo x > /owned; chown 500:501 /owned; touch /suid; chmod 4755 /suid") == "");
  struct stat status {};
  REQUIRE(stat((steps.upper() / "owned").c_str(), &status) == 0);
  CHECK(status.st_uid == 500);
  CHECK(status.st_gid == 501);
  REQUIRE(stat((steps.upper() / "suid").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 04755);
  chmod((steps.root() / "bin/busybox").c_str(), 04755);
  write(steps.root() / "etc/passwd", "root::0:0:root:/root:/bin/sh\nmaker:x:500:501:Maker:/home/maker:/bin/sh\n");
  SandboxStep step = steps.step("su -c 'id -u'");  // root has an empty password
  step.user = "maker";
  CHECK(steps.run(step) == "0\n");
}

TEST_CASE("a missing working directory is created") {
  Steps steps;
  SandboxStep step = steps.step("pwd");
  step.working_directory = "/src/app";
  CHECK(steps.run(step) == "/src/app\n");
  CHECK(tree(steps.upper()) == std::vector<std::string>{"src/", "src/app/"});
}

TEST_CASE("a script is run by its own interpreter and is not part of the image") {
  Steps steps;
  SandboxStep step = steps.step("");
  step.command = {"/dev/pipes/EOF"};
  step.script = "#!/bin/sh\necho from a script\n";
  CHECK(steps.run(step) == "from a script\n");
  CHECK(tree(steps.upper()).empty());
}

TEST_CASE("name resolution uses the host's resolv.conf without changing the image") {
  Steps steps;
  CHECK(steps.run("cat /etc/resolv.conf") == read("/etc/resolv.conf"));
  CHECK(steps.run("grep -c localhost /etc/hosts").find("exit code") == std::string::npos);
  // A link in the image whose target does not exist is resolved within the image.
  fs::create_symlink("../run/resolve/resolv.conf", steps.root() / "etc/resolv.conf");
  CHECK(steps.run("cat /run/resolve/resolv.conf") == read("/etc/resolv.conf"));
  CHECK(tree(steps.upper()).empty());
}

TEST_CASE("without a network, a step has only a loopback interface") {
  Steps steps;
  SandboxStep step = steps.step("ip -o link | wc -l; ping -c 1 -W 1 127.0.0.1 > /dev/null && echo pong");
  step.network = Run::Network::kNone;
  CHECK(steps.run(step).starts_with("1\n"));
  step = steps.step("ip -o addr");
  step.network = Run::Network::kNone;
  CHECK(steps.run(step).find("127.0.0.1/8") != std::string::npos);
}

TEST_CASE("without a network, /sys hides the host's network devices and keeps /sys/fs/cgroup") {
  Steps steps;
  const std::string limits = steps.run("ls /sys/fs/cgroup");
  SandboxStep step = steps.step("ls /sys/fs/cgroup");
  step.network = Run::Network::kNone;
  CHECK(steps.run(step) == limits);
  step = steps.step("ls /sys/class/net; echo x > /sys/kernel/uevent_seqnum");
  step.network = Run::Network::kNone;
  const std::string devices = steps.run(step);
  CHECK(devices.find("Read-only file system") != std::string::npos);
  CHECK(devices.starts_with("lo\n") == may_mount_sys(steps.path("sys")));
}

TEST_CASE("background processes end with the command that started them") {
  Steps steps;
  const auto begin = std::chrono::steady_clock::now();
  const std::string sleep = "setsid sleep " + own_seconds(1);
  CHECK(steps.run(sleep + " & " + sleep + " > /dev/null 2>&1 & echo done") == "done\n");
  CHECK(std::chrono::steady_clock::now() - begin < 60s);
  CHECK(processes_with(own_seconds(1)) == 0);
}

TEST_CASE("a stop request promptly kills all processes of the step") {
  Steps steps;
  const std::string sleep = "sleep " + own_seconds(2);
  const SandboxStep step = steps.step("trap '' TERM INT; setsid " + sleep + " & echo up; " + sleep);
  std::stop_source source;
  std::chrono::steady_clock::time_point asked;
  const auto on_line = [&](std::string_view) {
    asked = std::chrono::steady_clock::now();
    source.request_stop();
  };
  CHECK_THROWS_AS(run_in_sandbox(step, on_line, source.get_token()), adaptdl::http::Stopped);
  CHECK(std::chrono::steady_clock::now() - asked < 30s);  // less than a second on an idle machine
  CHECK(processes_with(own_seconds(2)) == 0);
}

TEST_CASE("a builder killed at any moment leaves no processes and no mounts" * doctest::test_suite("slow")) {
  Steps steps;
  const Mounts mounts;
  const std::string sleep = "sleep " + own_seconds(3);
  // Processes that a builder leaves behind become children of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int number = 0; number < 80; ++number) {
    const SandboxStep step = steps.step("setsid " + sleep + " & " + sleep);
    const pid_t builder = fork();
    if (builder == 0) {
      try {
        run_in_sandbox(step, nullptr, {});
      } catch (...) {
      }
      _exit(0);
    }
    std::this_thread::sleep_for(number % 2 == 0 ? number * 500us : number * 20us);
    kill(builder, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(builder, &status, 0) == builder);
    CHECK(WIFSIGNALED(status));
    REQUIRE(soon([] {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      return errno == ECHILD;
    }));
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  CHECK(processes_with(own_seconds(3)) == 0);
  CHECK(mounts.added().empty());
}

TEST_CASE("concurrent steps do not wait for each other's output") {
  Steps steps;
  const SandboxStep silent = steps.step("echo up; sleep 600");
  std::vector<SandboxStep> others;
  for (int i = 0; i < 5; ++i) others.push_back(steps.step("seq 1 2000 | wc -l"));
  std::latch up(1);
  std::atomic<bool> ended = false;
  std::stop_source stop;
  std::jthread waiting([&] {
    CHECK_THROWS_AS(run_in_sandbox(
                        silent, [&](std::string_view) { up.count_down(); }, stop.get_token()),
                    adaptdl::http::Stopped);
    ended = true;
  });
  up.wait();
  std::vector<std::string> texts(others.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < others.size(); ++i)
    threads.emplace_back(
        [&, i] { run_in_sandbox(others[i], [&, i](std::string_view line) { texts[i] += line; }, {}); });
  threads.clear();
  CHECK(texts == std::vector<std::string>(others.size(), "2000"));
  CHECK_FALSE(ended);
  stop.request_stop();
}

}  // namespace image_sandbox_test
