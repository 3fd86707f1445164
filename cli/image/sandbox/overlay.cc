#include "image/sandbox/overlay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "image/layer/entry.h"
#include "image/sandbox/mount_calls.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxOptions = 4095;  // one page, the kernel's limit

[[noreturn]] void fail_overlay(const fs::path& path, int error) {
  throw Error(fmt::format("{}: {}", path.string(), std::strerror(error)));
}

Fd open_directory(const fs::path& path) {
  Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_overlay(path, errno);
  return directory;
}

void make_directory(const fs::path& path) {
  std::error_code error;
  if (fs::create_directories(path, error); error) fail_overlay(path, error.value());
}

// The root of an overlay has the attributes of the upper directory.
void make_upper(const fs::path& upper, const fs::path* lower) {
  if (fs::exists(upper)) return;
  make_directory(upper);
  if (lower == nullptr) {
    ::chmod(upper.c_str(), 0755);
    return;
  }
  const Fd directory(::open(lower->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!directory || ::fstat(directory.get(), &status) != 0) fail_overlay(*lower, errno);
  for (const auto& [name, value] : read_entry(directory.get(), ".", "").xattrs)
    ::setxattr(upper.c_str(), name.c_str(), value.data(), value.size(), 0);
  const timespec times[2] = {status.st_atim, status.st_mtim};
  if (::chown(upper.c_str(), status.st_uid, status.st_gid) != 0 ||
      ::chmod(upper.c_str(), status.st_mode & 07777) != 0 || ::utimensat(AT_FDCWD, upper.c_str(), times, 0) != 0)
    fail_overlay(upper, errno);
}

std::string why_refused(int error, const OverlayLayers& layers) {
  if (error == ENODEV) return "the kernel has no overlay file system; have an administrator run: modprobe overlay";
  if (error == EPERM)
    return "the kernel allows only root to mount overlays; Linux 5.11 or later allows other users as well";
  if (error == EINVAL && !layers.upper.empty())
    return fmt::format(
        "the file system of '{}' cannot be the upper layer of an overlay (it is an overlay itself, as in containers, "
        "or a network file system); set ADAPTDL_BUILD_CACHE to a directory on another file system",
        layers.upper.parent_path().string());
  return std::strerror(error);
}

// Directories are named by descriptors in /proc/self/fd, so the lengths and characters of paths do not matter.
void mount_by_descriptors(const OverlayLayers& layers, const std::vector<Fd>& lower, const Fd& at) {
  std::string options = "userxattr,lowerdir=";
  for (const Fd& directory : lower) options += fmt::format("{}{}", &directory == &lower[0] ? "" : ":", directory.get());
  Fd upper, work;
  if (!layers.upper.empty()) {
    upper = open_directory(layers.upper);
    work = open_directory(layers.work);
    options += fmt::format(",upperdir={},workdir={}", upper.get(), work.get());
  }
  const std::string fast = options + (upper ? ",volatile" : "");
  if (fast.size() > kMaxOptions)
    throw Error(
        fmt::format("cannot mount an overlay: {} layers are too many; combine instructions, or use a base image with "
                    "fewer layers",
                    lower.size()));
  if (::chdir("/proc/self/fd") != 0) fail_overlay("/proc/self/fd", errno);
  const std::string target = std::to_string(at.get());
  if (::mount("overlay", target.c_str(), "overlay", MS_NODEV, fast.c_str()) == 0) return;
  if (errno != EINVAL || ::mount("overlay", target.c_str(), "overlay", MS_NODEV, options.c_str()) != 0)
    throw Error(fmt::format("cannot mount an overlay: {}", why_refused(errno, layers)));
}

}  // namespace

void mount_overlay(const OverlayLayers& layers, const fs::path& at) {
  std::vector<fs::path> paths;
  for (const fs::path& path : layers.lower)
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  make_directory(at);
  if (!layers.upper.empty()) {
    make_upper(layers.upper, paths.empty() ? nullptr : &paths[0]);
    make_directory(layers.work);
    if (paths.empty()) make_directory(paths.emplace_back(layers.work.string() + ".empty"));
  } else if (paths.empty()) {
    return;
  }
  std::vector<Fd> lower;
  for (const fs::path& path : paths) lower.push_back(open_directory(path));
  if (layers.upper.empty() && paths.size() == 1) {
    const Fd mount = clone_mount(lower[0].get(), paths[0].string(), false);
    restrict_mount(mount, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
    return attach_mount(mount, at.string());
  }
  mount_by_descriptors(layers, lower, open_directory(at));
}

Overlay::Overlay(const OverlayLayers& layers, fs::path at) : at_(std::move(at)) {
  std::exception_ptr error;
  // Mount on a thread that has its own working directory.
  std::thread([&] {
    try {
      if (::unshare(CLONE_FS) != 0) fail_overlay("unshare", errno);
      mount_overlay(layers, at_);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

Overlay::Overlay(Overlay&& other) noexcept : at_(std::move(other.at_)) { other.at_.clear(); }

Overlay::~Overlay() {
  if (!at_.empty()) ::umount2(at_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

}  // namespace adaptdl::image
