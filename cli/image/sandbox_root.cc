#include "image/sandbox_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "image/build_namespace.h"
#include "image/expansion.h"
#include "image/failed_call.h"
#include "image/mount_calls.h"
#include "image/open_inside.h"
#include "image/small_file.h"
#include "image/text_parts.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
using net::Fd;

constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};
// What a container has no business with, as other builders have it.
constexpr const char* kMasked[] = {"/proc/acpi",
                                   "/proc/asound",
                                   "/proc/interrupts",
                                   "/proc/kcore",
                                   "/proc/keys",
                                   "/proc/latency_stats",
                                   "/proc/sched_debug",
                                   "/proc/scsi",
                                   "/proc/timer_list",
                                   "/proc/timer_stats",
                                   "/sys/devices/virtual/powercap",
                                   "/sys/firmware"};
constexpr const char* kControlGroups = "/sys/fs/cgroup";
constexpr const char* kReadOnly[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};

void mount_new(const char* type, const std::string& at, unsigned long flags, const std::string& options) {
  if (::mount(type, at.c_str(), type, flags, options.c_str()) != 0)
    fail_call(fmt::format("cannot mount {} at {}", type, at));
}

void write_file(const std::string& path, std::string_view content, mode_t mode, uid_t user = 0, gid_t group = 0) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_call(path);
  for (std::string_view left = content; !left.empty();) {
    const ssize_t count = ::write(file.get(), left.data(), left.size());
    if (count < 0) fail_call(path);
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fchown(file.get(), user, group) != 0) fail_call(path + one_id_hint());
  if (::fchmod(file.get(), mode) != 0) fail_call(path);
}

// A mount that is made before the root changes, to be put somewhere afterwards.
struct Prepared {
  std::string target;
  Fd mount;  // none: a new tmpfs
  bool directory = true;
  std::size_t size = 0;  // of the tmpfs
};

class RootMaker {
 public:
  RootMaker(const SandboxStep& step, const std::vector<std::string>& caches) : step_(step), caches_(caches) {}

  MountPoints enter() {
    const std::string root = step_.scratch / "root";
    mount_overlay(step_.root, root);
    MountPoints points(Fd(::open(step_.root.upper.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    prepare_files();
    for (const StepMount& mount : step_.mounts) prepare(mount);
    prepare_system();

    const Fd old(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (::chdir(root.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0) fail_call("cannot change the root");
    mount_system(points);
    mount_prepared(points);
    points.complete();
    if (::fchdir(old.get()) != 0 || ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0)
      fail_call("cannot leave the old root");
    return points;
  }

 private:
  // Files of this step's own, in memory alone.
  void prepare_files() {
    files_ = step_.scratch / "files";
    if (::mkdir(files_.c_str(), 0700) != 0) fail_call(files_);
    // Linux 6.4 can keep it from being swapped out, for root.
    if (::mount("tmpfs", files_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,noswap") != 0)
      mount_new("tmpfs", files_, MS_NOSUID | MS_NODEV, "mode=0700");
    prepare_file("/etc/resolv.conf", text_of_file("/etc/resolv.conf"), 0644);
    std::string hosts =
        fmt::format("127.0.0.1\tlocalhost {}\n::1\tlocalhost ip6-localhost ip6-loopback\n", kSandboxHost);
    if (step_.network != Run::Network::kNone) hosts += text_of_file("/etc/hosts");
    prepare_file("/etc/hosts", hosts, 0644);
  }

  void prepare_file(const std::string& target, std::string_view content, mode_t mode, uid_t user = 0, gid_t group = 0) {
    const std::string path = fmt::format("{}/{}", files_, prepared_.size());
    write_file(path, content, mode, user, group);
    Fd mount = clone_mount(path, false);
    restrict_mount(mount, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    prepared_.push_back({target, std::move(mount), false});
  }

  void prepare(const StepMount& given) {
    const Mount& mount = given.mount;
    const std::string target = fs::path("/") / step_.working_directory / mount.target;
    switch (mount.type) {
      case Mount::Type::kTmpfs:
        prepared_.push_back({target, Fd(), true, mount.size});
        return;
      case Mount::Type::kSecret:
        if (!mount.target.empty())
          prepare_file(target, given.content, mount.mode.value_or(0400), mount.user.value_or(0),
                       mount.group.value_or(0));
        return;
      case Mount::Type::kCache:
        prepare_bind(target, clone_mount(caches_.at(next_cache_++), true), true, mount.read_only);
        return;
      case Mount::Type::kBind: {
        const Fd source = open_source(given);
        struct stat status {};
        ::fstat(source.get(), &status);
        prepare_bind(target, clone_mount(source.get(), mount.source, true), S_ISDIR(status.st_mode), mount.read_only);
        return;
      }
    }
  }

  void prepare_bind(const std::string& target, Fd mount, bool directory, bool read_only) {
    restrict_mount(mount, MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY : 0));
    prepared_.push_back({target, std::move(mount), directory});
  }

  Fd open_source(const StepMount& given) {
    fs::path tree = given.from.size() == 1 ? given.from[0] : fs::path();
    if (given.from.size() != 1 || !given.mount.read_only) {
      const std::string base = fmt::format("{}/from{}", step_.scratch.string(), prepared_.size());
      OverlayLayers layers{given.from, "", ""};
      if (!given.mount.read_only) layers.upper = base + ".upper", layers.work = base + ".work";
      mount_overlay(layers, base);
      tree = base;
    }
    return open_inside(tree, given.mount.source);
  }

  void prepare_system() {
    for (const char* device : kDevices) devices_.push_back(clone_mount(fmt::format("/dev/{}", device), false));
    // Neither may be mounted anew by everyone: without a network of its own, or where a container hides parts of it.
    sys_ = clone_mount("/sys", true);
    restrict_mount(sys_, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (::access(kControlGroups, F_OK) == 0) control_groups_ = clone_mount(kControlGroups, true);
    proc_ = clone_mount("/proc", true);
    restrict_mount(proc_, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  }

  void mount_system(MountPoints& points) {
    const std::string proc = points.prepare("/proc", true);
    // In a container that hides parts of it: the container's, in which processes have other numbers.
    if (::mount("proc", proc.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
      attach_mount(proc_, proc);
    points.mounted(proc);
    mount_sys(points);
    const std::string dev = points.prepare("/dev", true);
    mount_new("tmpfs", dev, MS_NOSUID | MS_STRICTATIME, "mode=0755,size=65536k");
    points.mounted(dev);
    fill_dev(dev);
    for (const char* path : kMasked) mask(path, dev);
    for (const char* path : kReadOnly) {
      if (::access(path, F_OK) != 0) continue;
      const Fd mount = clone_mount(path, true);
      restrict_mount(mount, MOUNT_ATTR_RDONLY);
      attach_mount(mount, path);
    }
  }

  // A new one shows the devices of a network of its own; but not to users from whom a container hides parts of its own.
  void mount_sys(MountPoints& points) {
    const std::string sys = points.prepare("/sys", true);
    const bool fresh =
        step_.network == Run::Network::kNone &&
        ::mount("sysfs", sys.c_str(), "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
    if (!fresh) attach_mount(sys_, sys);
    points.mounted(sys);
    if (!fresh || !control_groups_) return;
    restrict_mount(control_groups_, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    attach_mount(control_groups_, kControlGroups);
  }

  void fill_dev(const std::string& dev) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const std::string path = fmt::format("{}/{}", dev, kDevices[i]);
      write_file(path, "", 0666);
      attach_mount(devices_[i], path);
    }
    for (const char* name : {"pts", "shm", "mqueue"})
      if (::mkdir(fmt::format("{}/{}", dev, name).c_str(), 0755) != 0) fail_call(dev);
    const std::string pts = dev + "/pts", terminals = "newinstance,ptmxmode=0666,mode=0620";
    // Group 5 is tty, if there is one.
    if (::mount("devpts", pts.c_str(), "devpts", MS_NOSUID | MS_NOEXEC, (terminals + ",gid=5").c_str()) != 0)
      mount_new("devpts", pts, MS_NOSUID | MS_NOEXEC, terminals);
    mount_new("tmpfs", dev + "/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=65536k");
    mount_new("mqueue", dev + "/mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, "");
    for (const auto& [name, target] : {std::pair{"ptmx", "pts/ptmx"},
                                       {"fd", "/proc/self/fd"},
                                       {"stdin", "/proc/self/fd/0"},
                                       {"stdout", "/proc/self/fd/1"},
                                       {"stderr", "/proc/self/fd/2"},
                                       {"core", "/proc/kcore"}})
      if (::symlink(target, fmt::format("{}/{}", dev, name).c_str()) != 0) fail_call(dev);
    if (!step_.script) return;
    // kScriptDirectory is in /dev, so the script is in memory too.
    if (::mkdir(kScriptDirectory, 0755) != 0) fail_call(kScriptDirectory);
    write_file(fmt::format("{}/{}", kScriptDirectory, fs::path(step_.command.at(0)).filename().string()), *step_.script,
               0755);
  }

  static void mask(const std::string& path, const std::string& dev) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return;
    if (S_ISDIR(status.st_mode))
      mount_new("tmpfs", path, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0k,mode=0755");
    else
      attach_mount(clone_mount(dev + "/null", false), path);
  }

  void mount_prepared(MountPoints& points) {
    const auto depth = [](const Prepared& mount) {
      const std::vector<std::string> parts = split(mount.target, '/');
      return std::count_if(parts.begin(), parts.end(), [](const std::string& part) { return !part.empty(); });
    };
    // A target may be within another's.
    std::stable_sort(prepared_.begin(), prepared_.end(),
                     [&](const Prepared& one, const Prepared& other) { return depth(one) < depth(other); });
    for (const Prepared& mount : prepared_) {
      const std::string path = points.prepare(mount.target, mount.directory);
      if (path == "/") throw Error(fmt::format("{} is the root, and no --mount's target", mount.target));
      if (mount.mount)
        attach_mount(mount.mount, path);
      else
        mount_new("tmpfs", path, MS_NOSUID | MS_NODEV, mount.size == 0 ? "" : fmt::format("size={}", mount.size));
      points.mounted(path);
    }
  }

  const SandboxStep& step_;
  const std::vector<std::string>& caches_;
  std::size_t next_cache_ = 0;
  std::string files_;
  std::vector<Prepared> prepared_;
  std::vector<Fd> devices_;
  Fd sys_, control_groups_, proc_;
};

}  // namespace

MountPoints enter_root(const SandboxStep& step, const std::vector<std::string>& caches) {
  return RootMaker(step, caches).enter();
}

}  // namespace adaptdl::image
