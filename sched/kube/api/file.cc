#include "kube/api/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/fd.h"

namespace adaptdl::kube {
namespace {

constexpr std::size_t kMaxFileSize = std::size_t{8} << 20;
constexpr int kPipePatience = 5000;  // ms

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view what, std::string_view why) {
  throw Error(fmt::format("cannot read '{}' ({}): {}", file.string(), what, why));
}

}  // namespace

std::optional<std::string> read_if_there(const std::filesystem::path& file, std::string_view what) {
  // The file may be a pipe, and a pipe without a writer must not block the command.
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    fail(file, what, std::strerror(errno));
  }
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    pollfd readable{fd.get(), POLLIN, 0};
    if (count < 0 && errno == EAGAIN && ::poll(&readable, 1, kPipePatience) > 0) continue;
    if (count < 0) fail(file, what, std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMaxFileSize) fail(file, what, fmt::format("larger than {} MiB", kMaxFileSize >> 20));
  }
}

std::string read_file(const std::filesystem::path& file, std::string_view what) {
  std::optional<std::string> text = read_if_there(file, what);
  if (!text) fail(file, what, std::strerror(ENOENT));
  return *std::move(text);
}

}  // namespace adaptdl::kube
