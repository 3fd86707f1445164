#include "image/mount_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::image {
namespace {

net::Fd clone(int directory, const char* name, const std::string& path, bool recursive) {
  const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
  net::Fd mount(::open_tree(directory, name, flags));
  if (!mount) throw Error(fmt::format("cannot mount {}: {}", path, std::strerror(errno)));
  return mount;
}

}  // namespace

net::Fd clone_mount(int file, const std::string& path, bool recursive) { return clone(file, "", path, recursive); }
net::Fd clone_mount(const std::string& path, bool recursive) { return clone(AT_FDCWD, path.c_str(), path, recursive); }

void restrict_mount(const net::Fd& mount, std::uint64_t flags) {
  mount_attr attributes{};
  attributes.attr_set = flags;
  if (::mount_setattr(mount.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) != 0)
    throw Error(fmt::format("cannot restrict a mount: {}{}", std::strerror(errno),
                            errno == ENOSYS ? "; this takes Linux 5.12 or later" : ""));
}

void attach_mount(const net::Fd& mount, const std::string& at) {
  if (::move_mount(mount.get(), "", AT_FDCWD, at.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    throw Error(fmt::format("cannot mount something at {}: {}", at, std::strerror(errno)));
}

}  // namespace adaptdl::image
