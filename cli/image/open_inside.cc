#include "image/open_inside.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "image/open_rooted.h"

namespace adaptdl::image {

net::Fd open_inside(const std::filesystem::path& root, const std::string& path) {
  const net::Fd top(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) throw Error(fmt::format("{}: {}", root.string(), std::strerror(errno)));
  net::Fd file = open_rooted(top.get(), path, O_PATH, Links::kInRoot);
  if (!file) throw Error(fmt::format("'{}' to be mounted: {}", path, std::strerror(errno)));
  return file;
}

}  // namespace adaptdl::image
