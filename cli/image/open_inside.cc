#include "image/open_inside.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"

namespace adaptdl::image {

net::Fd open_inside(const std::filesystem::path& root, const std::string& path) {
  const net::Fd top(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) throw Error(fmt::format("{}: {}", root.string(), std::strerror(errno)));
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  for (;;) {
    const long file = ::syscall(SYS_openat2, top.get(), path.empty() ? "." : path.c_str(), &how, sizeof how);
    if (file >= 0) return net::Fd(static_cast<int>(file));
    // Something was renamed while it looked: it says so where it cannot be sure.
    if (errno != EAGAIN) throw Error(fmt::format("'{}' to be mounted: {}", path, std::strerror(errno)));
  }
}

}  // namespace adaptdl::image
