#include "image/base/open_rooted.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {

Fd open_rooted(int root, const std::string& path, int flags, Links links, unsigned mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.mode = mode;
  how.resolve =
      RESOLVE_NO_MAGICLINKS | (links == Links::kInRoot ? RESOLVE_IN_ROOT : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  for (;;) {
    const long file = ::syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how);
    if (file >= 0) return Fd(static_cast<int>(file));
    // EAGAIN means that something on the machine was renamed or mounted while the kernel was resolving a "..", so the
    // kernel cannot rule out an escape.
    if (errno != EAGAIN && errno != EINTR) return Fd();
  }
}

Fd open_inside(const std::filesystem::path& root, const std::string& path) {
  const Fd top(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) throw Error(fmt::format("cannot open '{}': {}", root.string(), std::strerror(errno)));
  Fd file = open_rooted(top.get(), path, O_PATH, Links::kInRoot);
  if (!file) throw Error(fmt::format("cannot mount '{}': {}", one_line(path, 200), std::strerror(errno)));
  return file;
}

}  // namespace adaptdl::image
