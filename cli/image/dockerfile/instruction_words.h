// Splits instruction arguments; each kind of argument has its own rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile/dockerfile.h"

namespace adaptdl::image {

// Removes the flags at the start of an instruction's arguments from `text`, and returns them.
std::vector<std::string> take_flags(std::string_view& text, char escape);

// Returns the words between unquoted spaces, with their quotes and escapes.
std::vector<std::string> quoted_words(std::string_view text, char escape);

// Parses a JSON array of strings. Returns nullopt if the text is not a JSON array; the caller must then parse it in
// another way. Throws Error, without file or line, for an array with other elements.
std::optional<std::vector<std::string>> json_words(std::string_view text);

// Returns the heredoc that a word begins, without its content; nullopt if the word begins no heredoc.
std::optional<Heredoc> heredoc_of(std::string_view word);
// Returns all heredocs that a line begins.
std::vector<Heredoc> heredocs_of(std::string_view line);
std::string without_tabs(std::string_view content);

}  // namespace adaptdl::image
