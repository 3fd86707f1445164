// Determines what a file descriptor refers to, and formats text for it.
//
// Colour is used only on a terminal, and not if NO_COLOR is set and not empty, or if TERM is "dumb", empty or unset.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::cli {

bool is_terminal(int fd);

// Returns whether lines can be redrawn and coloured: `fd` is a terminal that is not dumb.
bool is_capable_terminal(int fd);

// Returns whether text written to `fd` should be coloured.
bool use_colour(int fd);

// Returns the present number of columns of the terminal; nullopt if `fd` is not a terminal, or it reports none.
std::optional<std::size_t> terminal_width(int fd);

// The width that is assumed of a terminal that reports none.
inline constexpr std::size_t kUsualWidth = 80;

// The minimum time between two redraws of a line or a screen.
inline constexpr std::chrono::milliseconds kRedrawEvery{100};

// Returns the present number of lines of the terminal, likewise.
std::optional<std::size_t> terminal_height(int fd);

enum class Colour { kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kBold, kDim };

// Returns the text in a colour if `enabled`, else unchanged.
std::string coloured(std::string_view text, Colour colour, bool enabled);

// Returns the size in bytes of the sequence of coloured() that `text` begins with, or 0.
std::size_t colour_sequence_size(std::string_view text);

// Returns the columns that the text takes on a terminal: one for each UTF-8 character.
std::size_t display_width(std::string_view text);

// Returns the text cut to `width` columns, the last of which is "…" if anything was cut.
std::string truncated(std::string_view text, std::size_t width);

}  // namespace adaptdl::cli
