// What is at the other end of a file descriptor, and how it wants its text.
//
// Colour is used on a terminal only, and neither when NO_COLOR is set to anything but nothing, nor when TERM is "dumb"
// or unset.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::cli {

bool is_terminal(int fd);

// Whether lines can be redrawn and coloured there: a terminal that is not dumb.
bool is_capable_terminal(int fd);

// Whether text written to `fd` should be coloured.
bool use_colour(int fd);

// Columns of the terminal now; nullopt if it is none or does not say.
std::optional<std::size_t> terminal_width(int fd);

// Taken for the width of a terminal that does not say.
inline constexpr std::size_t kUsualWidth = 80;

// How often a line or a screen is drawn again, at most.
inline constexpr std::chrono::milliseconds kRedrawEvery{100};

// Its lines, likewise.
std::optional<std::size_t> terminal_height(int fd);

enum class Colour { kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kBold, kDim };

// The text in a colour if `enabled`, else as it is.
std::string coloured(std::string_view text, Colour colour, bool enabled);

// Bytes of the sequence that `text` begins with, if it is one of those that coloured() writes, else 0.
std::size_t colour_sequence_size(std::string_view text);

// Columns that the text takes on a terminal: its characters, as UTF-8.
std::size_t display_width(std::string_view text);

// The text cut to `width` columns, the last of which is "…" if anything was cut.
std::string truncated(std::string_view text, std::size_t width);

}  // namespace adaptdl::cli
