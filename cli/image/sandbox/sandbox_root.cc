#include "image/sandbox/sandbox_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/failed_call.h"
#include "image/base/open_rooted.h"
#include "image/base/small_file.h"
#include "image/dockerfile/expansion.h"
#include "image/sandbox/build_namespace.h"
#include "image/sandbox/mount_calls.h"
#include "image/sandbox/step_exec.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};
// Other container runtimes hide the same files.
constexpr const char* kMaskedProc[] = {"acpi",          "asound",      "interrupts", "kcore",      "keys",
                                       "latency_stats", "sched_debug", "scsi",       "timer_list", "timer_stats"};
constexpr const char* kMaskedSys[] = {"devices/virtual/powercap", "firmware"};
// File systems that a machine mounts in its /sys.
constexpr const char* kMaskedMounts[] = {"fs/bpf", "fs/pstore", "kernel/debug", "kernel/security", "kernel/tracing"};
constexpr const char* kReadOnlyProc[] = {"bus", "fs", "irq", "pressure", "sys", "sysrq-trigger"};
constexpr const char* kControlGroups = "/sys/fs/cgroup";
constexpr std::uint64_t kPlain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr std::uint64_t kInert = kPlain | MOUNT_ATTR_NOEXEC;

void write_file(int directory, const std::string& name, std::string_view content, mode_t mode, uid_t user = 0,
                gid_t group = 0) {
  const Fd file(::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_call(name);
  for (std::string_view left = content; !left.empty();) {
    const ssize_t count = ::write(file.get(), left.data(), left.size());
    if (count < 0) fail_call(name);
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fchown(file.get(), user, group) != 0) fail_call(name + one_id_hint());
  if (::fchmod(file.get(), mode) != 0) fail_call(name);
}

void make_directory(int parent, const std::string& name) {
  if (::mkdirat(parent, name.c_str(), 0755) != 0) fail_call(name);
}

// A mount and its target.
struct Prepared {
  std::string target;
  Fd mount;  // empty for a new tmpfs
  bool directory = true;
  std::size_t size = 0;   // the tmpfs's size
  std::size_t cache = 0;  // number of the cache mount, from 1; 0 for other mounts
};
// An attached mount. Files that are created below `path` are not in the root's upper directory.
struct Placed {
  std::string path;       // relative to the root, without links
  std::size_t cache = 0;  // as above
};

class RootMaker {
 public:
  RootMaker(const SandboxStep& step, const std::vector<std::string>& caches)
      : step_(step), caches_(caches), made_(1 + caches.size()) {}

  EnteredRoot enter() {
    const std::string root = step_.scratch / "root";
    mount_overlay(step_.root, root);
    root_ = Fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root_) fail_call(root);
    prepare_files();
    for (const StepMount& mount : step_.mounts) prepare(mount);

    mount_proc();
    mount_sys();
    mount_dev();
    mount_prepared();
    if (::fchdir(root_.get()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 || ::umount2(".", MNT_DETACH) != 0 ||
        ::chdir("/") != 0)
      fail_call("cannot change the root directory");
    return {std::move(made_), std::move(starter_)};
  }

 private:
  // Prepares this step's own files, which are kept only in memory.
  void prepare_files() {
    files_ = step_.scratch / "files";
    if (::mkdir(files_.c_str(), 0700) != 0) fail_call(files_);
    attach_mount(memory_for_secrets(), files_);
    prepare_file("/etc/resolv.conf", text_of_file("/etc/resolv.conf"), 0644);
    std::string hosts =
        fmt::format("127.0.0.1\tlocalhost {}\n::1\tlocalhost ip6-localhost ip6-loopback\n", kSandboxHost);
    if (step_.network != Run::Network::kNone) hosts += text_of_file("/etc/hosts");
    prepare_file("/etc/hosts", hosts, 0644);
    write_file(AT_FDCWD, files_ + "/step-exec", kStepExec, 0555);
    starter_ = Fd(::open((files_ + "/step-exec").c_str(), O_RDONLY | O_CLOEXEC));
    if (!starter_) fail_call(files_);
  }

  // Linux 6.4 or later allows root to prevent a tmpfs from being swapped out.
  static Fd memory_for_secrets() {
    try {
      return new_mount("tmpfs", kPlain, {{"mode", "0700"}, {"noswap", ""}});
    } catch (const Error&) {
      return new_mount("tmpfs", kPlain, {{"mode", "0700"}});
    }
  }

  void prepare_file(const std::string& target, std::string_view content, mode_t mode, uid_t user = 0, gid_t group = 0) {
    const std::string path = fmt::format("{}/{}", files_, prepared_.size());
    write_file(AT_FDCWD, path, content, mode, user, group);
    Fd mount = clone_mount(path, false);
    restrict_mount(mount, MOUNT_ATTR_RDONLY | kInert);
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
        prepare_bind(target, clone_mount(caches_.at(next_cache_), true), true, mount.read_only);
        prepared_.back().cache = ++next_cache_;
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

  // Opens the image's directory for a kernel file system. If the directory were a link, the file system would be
  // mounted elsewhere, and the parts that must be hidden could be reached at another path.
  Fd system_directory(const std::string& name) {
    const Fd found = open_rooted(root_.get(), name, O_PATH | O_NOFOLLOW, Links::kRefused);
    struct stat status {};
    if (found && (::fstat(found.get(), &status) != 0 || !S_ISDIR(status.st_mode)))
      throw Error(fmt::format("/{} in the image must be a directory", name));
    return place("/" + name, true).file;
  }

  FoundPath place(const std::string& target, bool directory) {
    std::vector<std::string> made;
    FoundPath found = find_or_make(root_.get(), target, directory, made, true);
    if (!found.file) fail_call(fmt::format("cannot mount at '{}'", one_line(target, 200)));
    for (std::string& each : made) note(std::move(each));
    return found;
  }

  void note(std::string made) {
    for (auto mount = placed_.rbegin(); mount != placed_.rend(); ++mount) {
      if (!made.starts_with(mount->path + "/")) continue;
      if (mount->cache == 0) return;
      made.erase(0, mount->path.size() + 1);
      return made_[mount->cache].push_back(std::move(made));
    }
    made_[0].push_back(std::move(made));
  }

  void mount_proc() {
    const Fd at = system_directory("proc");
    Fd proc;
    try {
      proc = new_mount("proc", kInert);
    } catch (const Error&) {
      // A container that hides parts of its /proc cannot mount a new procfs. The container's own /proc shows different
      // process numbers.
      proc = clone_mount("/proc", true);
      restrict_mount(proc, kInert);
    }
    attach_mount(proc, at.get(), "/proc");
    for (const char* path : kMaskedProc) mask(proc, path);
    for (const char* path : kReadOnlyProc) {
      const Fd file = below(proc, path);
      if (!file) continue;
      const Fd mount = clone_mount(file.get(), path, true);
      restrict_mount(mount, MOUNT_ATTR_RDONLY);
      attach_mount(mount, file.get(), path);
    }
  }

  // A new sysfs shows only the step's own network devices. A container that hides parts of its /sys cannot mount a new
  // sysfs.
  void mount_sys() {
    const Fd at = system_directory("sys");
    Fd sys;
    if (step_.network == Run::Network::kNone) try {
        sys = new_mount("sysfs", MOUNT_ATTR_RDONLY | kInert, {{"ro", ""}});
      } catch (const Error&) {
      }
    bool has_mounts = false;
    if (!sys) try {
        sys = clone_mount("/sys", false);
      } catch (const Error&) {
        // In a user namespace, the kernel does not allow a mount to be cloned without the mounts below it.
        sys = clone_mount("/sys", true);
        has_mounts = true;
      }
    restrict_mount(sys, MOUNT_ATTR_RDONLY | kInert);
    attach_mount(sys, at.get(), "/sys");
    for (const char* path : kMaskedSys) mask(sys, path);
    if (has_mounts)
      for (const char* path : kMaskedMounts) mask(sys, path);
    mount_control_groups(sys);
  }

  // With cgroup v2, the step sees only its own control groups; with v1, it sees the machine's.
  void mount_control_groups(const Fd& sys) {
    const Fd at = below(sys, "fs/cgroup");
    struct statfs system {};
    if (!at || ::statfs(kControlGroups, &system) != 0) return;
    const bool unified = system.f_type == CGROUP2_SUPER_MAGIC;
    const Fd groups = unified ? new_mount("cgroup2", MOUNT_ATTR_RDONLY | kInert) : clone_mount(kControlGroups, true);
    restrict_mount(groups, MOUNT_ATTR_RDONLY | kInert);
    attach_mount(groups, at.get(), kControlGroups);
  }

  void mount_dev() {
    const Fd at = system_directory("dev");
    // The devices that are mounted in /dev keep their own flags; no other device can be opened.
    const Fd dev = new_mount("tmpfs", kPlain | MOUNT_ATTR_STRICTATIME, {{"mode", "0755"}, {"size", "65536k"}});
    attach_mount(dev, at.get(), "/dev");
    for (const char* device : kDevices) {
      write_file(dev.get(), device, "", 0666);
      attach_mount(clone_mount(fmt::format("/dev/{}", device), false), below(dev, device).get(), device);
    }
    mount_in_dev(dev, "pts", terminals());
    mount_in_dev(dev, "shm", new_mount("tmpfs", kInert, {{"mode", "1777"}, {"size", "65536k"}}));
    mount_in_dev(dev, "mqueue", new_mount("mqueue", kInert));
    for (const auto& [name, target] : {std::pair{"ptmx", "pts/ptmx"},
                                       {"fd", "/proc/self/fd"},
                                       {"stdin", "/proc/self/fd/0"},
                                       {"stdout", "/proc/self/fd/1"},
                                       {"stderr", "/proc/self/fd/2"},
                                       {"core", "/proc/kcore"}})
      if (::symlinkat(target, dev.get(), name) != 0) fail_call("/dev");
    if (!step_.script) return;
    // The script is also kept in memory.
    const std::string scripts = fs::path(kScriptDirectory).lexically_relative("/dev");
    make_directory(dev.get(), scripts);
    write_file(below(dev, scripts).get(), fs::path(step_.command.at(0)).filename(), *step_.script, 0755);
  }

  void mount_in_dev(const Fd& dev, const std::string& name, const Fd& mount) {
    make_directory(dev.get(), name);
    attach_mount(mount, below(dev, name).get(), name);
  }

  static Fd terminals() {
    constexpr std::uint64_t kFlags = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    try {  // group 5 is tty; the call fails if this group is not mapped
      return new_mount("devpts", kFlags, {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", "5"}});
    } catch (const Error&) {
      return new_mount("devpts", kFlags, {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}});
    }
  }

  // Opens a path in a mount without following links. The descriptor is empty if the path does not exist.
  static Fd below(const Fd& mount, const std::string& path) {
    Fd file = open_rooted(mount.get(), path, O_PATH | O_NOFOLLOW, Links::kRefused);
    if (!file && errno != ENOENT) fail_call(path);
    return file;
  }

  void mask(const Fd& mount, const std::string& path) {
    const Fd file = below(mount, path);
    if (!file) return;
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail_call(path);
    if (!S_ISDIR(status.st_mode)) return attach_mount(clone_mount("/dev/null", false), file.get(), path);
    // Cloning one empty file system is faster than creating several.
    if (empty_) return attach_mount(clone_mount(empty_.get(), path, false), file.get(), path);
    empty_ = new_mount("tmpfs", MOUNT_ATTR_RDONLY | kInert, {{"size", "0k"}, {"mode", "0755"}});
    attach_mount(empty_, file.get(), path);
  }

  void mount_prepared() {
    const auto depth = [](const Prepared& mount) {
      const std::vector<std::string> parts = split(mount.target, '/');
      return std::count_if(parts.begin(), parts.end(), [](const std::string& part) { return !part.empty(); });
    };
    // A target may be inside another mount.
    std::stable_sort(prepared_.begin(), prepared_.end(),
                     [&](const Prepared& one, const Prepared& other) { return depth(one) < depth(other); });
    for (Prepared& mount : prepared_) {
      const FoundPath at = place(mount.target, mount.directory);
      const std::string first = at.path.substr(0, at.path.find('/')), target = one_line(mount.target, 200);
      if (at.path.empty()) throw Error(fmt::format("cannot mount at '{}': it is the root directory", target));
      if (first == "proc" || first == "sys")
        throw Error(fmt::format("cannot mount at '{}': it is in /{}, which is reserved for the kernel", target, first));
      if (!mount.mount && mount.size == 0) mount.mount = new_mount("tmpfs", kPlain);
      if (!mount.mount) mount.mount = new_mount("tmpfs", kPlain, {{"size", std::to_string(mount.size)}});
      attach_mount(mount.mount, at.file.get(), target);
      placed_.push_back({at.path, mount.cache});
    }
  }

  const SandboxStep& step_;
  const std::vector<std::string>& caches_;
  std::size_t next_cache_ = 0;
  std::vector<Placed> placed_;
  std::string files_;
  std::vector<Prepared> prepared_;
  Fd root_, starter_, empty_;
  MadePaths made_;
};

}  // namespace

EnteredRoot enter_root(const SandboxStep& step, const std::vector<std::string>& caches) {
  return RootMaker(step, caches).enter();
}

}  // namespace adaptdl::image
