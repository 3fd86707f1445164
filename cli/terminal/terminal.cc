#include "terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace adaptdl::cli {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// These are in the order of the members of Colour.
constexpr std::array<std::string_view, 8> kColourSequences{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m",
                                                           "\x1b[35m", "\x1b[36m", "\x1b[1m",  "\x1b[2m"};
constexpr std::string_view kNoColour = "\x1b[0m";

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
  if (!enabled) return std::string(text);
  return std::string(kColourSequences.at(static_cast<std::size_t>(colour))) + std::string(text) +
         std::string(kNoColour);
}

std::size_t colour_sequence_size(std::string_view text) {
  if (text.starts_with(kNoColour)) return kNoColour.size();
  const auto found =
      std::ranges::find_if(kColourSequences, [text](std::string_view each) { return text.starts_with(each); });
  return found == kColourSequences.end() ? 0 : found->size();
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

}  // namespace adaptdl::cli
