// BuildKit's shell words: variables, substitutions, quotes and escapes in the arguments of instructions.
//
// Threading: plain functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

// The value of a variable, null if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

struct WordRules {
  char escape = '\\';
  bool keep_quotes = false;   // they do quote, and stay in the result
  bool keep_escapes = false;  // they do escape, and stay in the result
  bool plain_quotes = false;  // quotes are characters as others
  bool keep_unset = false;    // what names a variable that is not set stays as it is written
};

// Knows $x ${x} ${x:-w} ${x-w} ${x:+w} ${x+w} ${x:?w} ${x?w} ${x#p} ${x##p} ${x%p} ${x%%p} ${x/p/r} ${x//p/r}. Throws
// Error that says why, but not where.
std::string expand_word(std::string_view text, const WordRules& rules, const Variables& variables);

// The same, split at spaces that are not quoted, after the expansion. An empty word is none.
std::vector<std::string> expand_words(std::string_view text, const WordRules& rules, const Variables& variables);

}  // namespace adaptdl::image
