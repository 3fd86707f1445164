#include "terminal/print.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

void write(std::string_view text, std::FILE* to) {
  if (std::fwrite(text.data(), 1, text.size(), to) != text.size() && to == stdout)
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
}

}  // namespace

std::string printable_text(std::string_view text, bool colour) {
  std::string out;
  for (;;) {
    std::size_t end = colour ? 0 : std::string_view::npos, size = 0;
    while (end < text.size() && (end = text.find('\x1b', end)) != std::string_view::npos) {
      size = colour_sequence_size(text.substr(end));
      if (size > 0) break;
      ++end;
    }
    out += printable(text.substr(0, end), Newlines::kKeep);
    if (size == 0) return out;
    out += text.substr(end, size);
    text.remove_prefix(end + size);
  }
}

void print_text(std::string_view text, std::FILE* to) { write(printable_text(text, use_colour(::fileno(to))), to); }

void print_raw(std::string_view bytes) { std::fwrite(bytes.data(), 1, bytes.size(), stdout); }

void print_error(std::string_view what) { print_notice("error: {}", what); }

void erase_line() noexcept { std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stderr); }

void redraw_line(std::string_view text) {
  write(std::string(kEraseLine) + printable_text(text, use_colour(STDERR_FILENO)), stderr);
}

void erase_lines(std::ptrdiff_t count) { write(fmt::format("\x1b[{}A\r\x1b[J", count), stdout); }

}  // namespace adaptdl::cli
