// Only these functions write the command's own text to standard output and standard error. They ensure that this text
// cannot control a terminal.
//
// String arguments of a format string may contain untrusted text. They are made printable (see printable.h), including
// their newlines, so that they cannot begin a new line. Texts that are printed as a whole keep their newlines, and the
// colors of coloured().
//
// The functions throw std::system_error if standard output cannot be written. Errors on standard error are ignored.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/printable.h"

namespace adaptdl::cli {

template <typename T>
using PrintArgument = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string, T>;

template <typename T>
PrintArgument<T> print_argument(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable(value);
  } else {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, char>, "convert the argument to a string");
    return value;
  }
}

// Makes text printable, except for newlines and, if `colour` is set, the sequences of coloured().
std::string printable_text(std::string_view text, bool colour);

// Prints whole lines of the command's own text: a table, help or JSON. Untrusted text in these lines must already be
// printable, like the cells of a Table, because newlines and colors are printed unchanged.
void print_text(std::string_view text, std::FILE* to = stdout);

// Prints the output of a user's program, or a file, to standard output unchanged. On failure, does not throw, but sets
// the error indicator of stdout (see std::ferror).
void print_raw(std::string_view bytes);

template <typename... Args>
void print_out(fmt::format_string<PrintArgument<Args>...> format, const Args&... args) {
  print_text(fmt::format<PrintArgument<Args>...>(format, print_argument(args)...));
}

// Prints a line "adaptdl: …" on standard error.
template <typename... Args>
void print_notice(fmt::format_string<PrintArgument<Args>...> format, const Args&... args) {
  print_text("adaptdl: " + fmt::format<PrintArgument<Args>...>(format, print_argument(args)...) + '\n', stderr);
}

// Prints a line "adaptdl: error: …" on standard error.
void print_error(std::string_view what);

// Prints a question on standard error, on the line where the answer is typed.
template <typename... Args>
void print_prompt(fmt::format_string<PrintArgument<Args>...> format, const Args&... args) {
  print_text(fmt::format<PrintArgument<Args>...>(format, print_argument(args)...), stderr);
}

// Erases the current line of the terminal on standard error.
void erase_line() noexcept;

// Replaces the current line of the terminal on standard error with `text`, which must be a single line.
void redraw_line(std::string_view text);

// Erases the last `count` lines of the terminal on standard output.
void erase_lines(std::ptrdiff_t count);

}  // namespace adaptdl::cli
