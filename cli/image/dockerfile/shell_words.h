// BuildKit's shell words: variables, substitutions, quotes and escapes in instruction arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

// Returns the value of a variable; nullopt if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

struct WordRules {
  char escape = '\\';
  bool keep_quotes = false;   // quotes take effect, and are kept in the result
  bool keep_escapes = false;  // escapes take effect, and are kept in the result
  bool plain_quotes = false;  // quotes are ordinary characters
  bool keep_unset = false;    // references to unset variables are kept as written
};

// Supports $x ${x} ${x:-w} ${x-w} ${x:+w} ${x+w} ${x:?w} ${x?w} ${x#p} ${x##p} ${x%p} ${x%%p} ${x/p/r} ${x//p/r}.
// Throws an Error with the reason, without file or line.
std::string expand_word(std::string_view text, const WordRules& rules, const Variables& variables);

// Like expand_word(), but splits the result at unquoted spaces. Empty words are omitted.
std::vector<std::string> expand_words(std::string_view text, const WordRules& rules, const Variables& variables);

}  // namespace adaptdl::image
