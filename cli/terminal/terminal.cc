#include "terminal/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace adaptdl::cli {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int colour_code(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return 31;
    case Colour::kGreen:
      return 32;
    case Colour::kYellow:
      return 33;
    case Colour::kBlue:
      return 34;
    case Colour::kMagenta:
      return 35;
    case Colour::kCyan:
      return 36;
    case Colour::kBold:
      return 1;
    case Colour::kDim:
      return 2;
  }
  return 0;
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool is_capable_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return is_terminal(fd) && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

bool use_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return is_capable_terminal(fd) && (no_colour == nullptr || *no_colour == '\0');
}

std::optional<std::size_t> terminal_width(int fd) {
  winsize size{};
  if (!is_terminal(fd) || ::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::optional<std::size_t> terminal_height(int fd) {
  winsize size{};
  if (!is_terminal(fd) || ::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
  return size.ws_row;
}

std::string coloured(std::string_view text, Colour colour, bool enabled) {
  return enabled ? fmt::format("\x1b[{}m{}\x1b[0m", colour_code(colour), text) : std::string(text);
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

std::string truncated(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::size_t end = 0;
  for (std::size_t columns = 0; end < text.size(); ++end) {
    if (!continues_character(text[end]) && ++columns == width) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace adaptdl::cli
