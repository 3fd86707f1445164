#include "image/base/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "image/base/open_rooted.h"

namespace adaptdl::image {

std::optional<std::string> read_small_file(const std::filesystem::path& file, std::string_view what) {
  // O_NONBLOCK avoids waiting for a pipe that no process writes to.
  return read_small_file(Fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
                         fmt::format("'{}' ({})", file.string(), what));
}

std::optional<std::string> read_small_file(const Fd& fd, std::string_view what) {
  const auto fail = [&](std::string_view why) { throw Error(fmt::format("cannot read {}: {}", what, why)); };
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return {};
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) fail(std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail(std::strerror(EISDIR));
  if (!S_ISREG(info.st_mode)) fail("not a regular file");
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno != EINTR) fail(std::strerror(errno));
    if (count == 0) return text;
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMaxSmallFile) fail(fmt::format("larger than {} MiB", kMaxSmallFile >> 20));
  }
}

std::optional<std::string> read_build_file(const std::filesystem::path& context, const std::filesystem::path& file,
                                           std::string_view what) {
  namespace fs = std::filesystem;
  const fs::path inside =
      fs::absolute(file).lexically_normal().lexically_relative(fs::absolute(context / "").lexically_normal());
  if (inside.empty() || *inside.begin() == "..") return read_small_file(file, what);
  const Fd root(::open(context.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return read_small_file(root, fmt::format("'{}' ({})", file.string(), what));
  return read_small_file(open_rooted(root.get(), inside.string(), O_RDONLY | O_NONBLOCK, Links::kInRoot),
                         fmt::format("'{}' ({})", file.string(), what));
}

std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace adaptdl::image
