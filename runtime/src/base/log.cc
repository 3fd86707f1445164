#include "adaptdl/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/printable.h"

namespace adaptdl::log {
namespace {

// Joins the lines of a text into one, so that every line of output has the prefix. Escapes unprintable characters,
// because the text may quote other programs.
void write_line(std::string_view prefix, std::string_view text) {
  std::string flat(text);
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  const std::string line = std::string(prefix) + printable(flat) + '\n';
  const char* rest = line.data();
  std::size_t left = line.size();
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, rest, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // standard error is closed, so the failure cannot be reported
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
