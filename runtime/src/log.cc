#include "adaptdl/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "printable.h"

namespace adaptdl::log {
namespace {

// A text of several lines is folded into one, so that every line that carries the prefix is whole. Texts may quote what
// other programs sent.
void write_line(std::string_view prefix, std::string_view text) {
  std::string flat(text);
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  const std::string line = std::string(prefix) + printable(flat) + '\n';
  const char* rest = line.data();
  std::size_t left = line.size();
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, rest, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads standard error: there is no one to tell
    rest += written;
    left -= static_cast<std::size_t>(written);
  }
}

}  // namespace

void info(std::string_view text) {
  const char* level = std::getenv("ADAPTDL_LOG");
  if (level && std::string_view(level) == "warning") return;
  write_line("adaptdl: ", text);
}

void warn(std::string_view text) { write_line("adaptdl: warning: ", text); }

}  // namespace adaptdl::log
