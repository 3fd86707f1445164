#include "image/sandbox/mount_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace {

Fd clone(int directory, const char* name, const std::string& path, bool recursive) {
  const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
  Fd mount(::open_tree(directory, name, flags));
  if (!mount) throw Error(fmt::format("cannot mount '{}': {}", path, std::strerror(errno)));
  return mount;
}

void attach(const Fd& mount, int directory, const char* name, unsigned flags, const std::string& path) {
  if (::move_mount(mount.get(), "", directory, name, MOVE_MOUNT_F_EMPTY_PATH | flags) != 0)
    throw Error(fmt::format("cannot mount at '{}': {}", one_line(path, 200), std::strerror(errno)));
}

}  // namespace

Fd new_mount(const char* type, std::uint64_t attributes, MountOptions options) {
  const auto fail = [&] { throw Error(fmt::format("cannot mount {}: {}", type, std::strerror(errno))); };
  const Fd context(::fsopen(type, FSOPEN_CLOEXEC));
  if (!context) fail();
  for (const auto& [name, value] : options) {
    const auto kind = value.empty() ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    if (::fsconfig(context.get(), kind, name, value.empty() ? nullptr : value.c_str(), 0) != 0) fail();
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) fail();
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes)));
  if (!mount) fail();
  return mount;
}

Fd clone_mount(int file, const std::string& path, bool recursive) { return clone(file, "", path, recursive); }
Fd clone_mount(const std::string& path, bool recursive) { return clone(AT_FDCWD, path.c_str(), path, recursive); }

void restrict_mount(const Fd& mount, std::uint64_t flags) {
  mount_attr attributes{};
  attributes.attr_set = flags;
  if (::mount_setattr(mount.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) != 0)
    throw Error(fmt::format("cannot set the attributes of a mount: {}{}", std::strerror(errno),
                            errno == ENOSYS ? "; Linux 5.12 or later is required" : ""));
}

void attach_mount(const Fd& mount, int target, const std::string& path) {
  attach(mount, target, "", MOVE_MOUNT_T_EMPTY_PATH, path);
}
void attach_mount(const Fd& mount, const std::string& at) { attach(mount, AT_FDCWD, at.c_str(), 0, at); }

}  // namespace adaptdl::image
