// How the arguments of instructions are split, each in its way.
//
// Threading: plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/dockerfile.h"

namespace adaptdl::image {

// Takes the flags at the begin of an instruction's arguments away.
std::vector<std::string> take_flags(std::string_view& text, char escape);

// Words between spaces that are not quoted, with their quotes and escapes.
std::vector<std::string> quoted_words(std::string_view text, char escape);

// A JSON list of texts; null if it is none, and is read otherwise. Throws Error, without a place, if it is a list of
// something else.
std::optional<std::vector<std::string>> json_words(std::string_view text);

// A heredoc that a word begins, still without its content; null if it begins none.
std::optional<Heredoc> heredoc_of(std::string_view word);
// All that a line begins.
std::vector<Heredoc> heredocs_of(std::string_view line);
std::string without_tabs(std::string_view content);

}  // namespace adaptdl::image
