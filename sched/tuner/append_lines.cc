#include "tuner/append_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "base/private_files.h"

namespace adaptdl::sched::tune {

void append_lines(const std::filesystem::path& file, std::string_view lines) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateFile));
  bool written = static_cast<bool>(fd);
  while (written && !lines.empty()) {
    const ssize_t size = ::write(fd.get(), lines.data(), lines.size());
    if (size < 0 && errno == EINTR) continue;
    written = size >= 0;
    if (written) lines.remove_prefix(static_cast<std::size_t>(size));
  }
  if (!written || ::fdatasync(fd.get()) != 0)
    throw Error(fmt::format("cannot write file '{}': {}", file.string(), std::strerror(errno)));
}

}  // namespace adaptdl::sched::tune
