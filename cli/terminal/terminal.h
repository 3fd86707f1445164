// Determines what a file descriptor refers to, and formats text for it.
//
// Text is colored only on a terminal, unless NO_COLOR is set and not empty, or TERM is "dumb", empty or unset.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::cli {

bool is_terminal(int fd);

// Returns whether lines can be redrawn and colored, that is, whether `fd` is a terminal that is not dumb.
bool is_capable_terminal(int fd);

// Returns whether text written to `fd` should be colored.
bool use_colour(int fd);

// Returns the terminal's current number of columns, or nullopt if `fd` is not a terminal or does not report its size.
std::optional<std::size_t> terminal_width(int fd);

// The assumed width of a terminal that does not report its size.
inline constexpr std::size_t kUsualWidth = 80;

// The minimum time between two redraws of a line or a screen.
inline constexpr std::chrono::milliseconds kRedrawEvery{100};

// Returns the terminal's current number of lines, or nullopt in the same cases as terminal_width().
std::optional<std::size_t> terminal_height(int fd);

enum class Colour { kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kBold, kDim };

// Returns the text in a color if `enabled` is set, and unchanged otherwise.
std::string coloured(std::string_view text, Colour colour, bool enabled);

// Returns the size in bytes of the color sequence that `text` begins with, or 0 if it does not begin with one.
std::size_t colour_sequence_size(std::string_view text);

// Returns the number of columns that the text occupies on a terminal: one for each UTF-8 character.
std::size_t display_width(std::string_view text);

// Returns the text truncated to `width` columns, the last of which is "…" if anything was cut off.
std::string truncated(std::string_view text, std::size_t width);

}  // namespace adaptdl::cli
