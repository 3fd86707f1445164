// Wildcard patterns as an automaton: the matching time is at most proportional to the length of the pattern times the
// length of the text. The callers that build patterns define the wildcard syntax: paths in an ignore file, or shell
// patterns in a substitution.
//
// Threading: const methods may be called from several threads at once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adaptdl::image {

// Converts a text to characters, and back. A byte that is not valid UTF-8 becomes one character, which text_of()
// converts back to the same byte.
std::u32string characters_of(std::string_view text);
std::string text_of(std::u32string_view characters);

class Glob {
 public:
  using Range = std::pair<char32_t, char32_t>;  // first and last character
  void add_character(char32_t c);
  // Adds a wildcard for one character, or for any number of characters; `slash` specifies whether it also matches '/'.
  void add_one(bool slash);
  void add_many(bool slash);
  void add_set(bool negated, std::vector<Range> ranges);  // one character from a set
  void add_directories();                                 // nothing, or anything that ends with '/'
  void reverse();                                         // to match from the end; not allowed with add_directories()

  bool empty() const { return tokens_.empty(); }
  bool matches(std::u32string_view text) const;
  // Returns whether the path, or one of the directories above it, matches.
  bool matches_path(std::u32string_view path) const;
  // Returns whether a path below the directory can match.
  bool may_match_below(std::u32string_view directory) const;
  // Returns the end of the shortest or longest match that begins at the start of the text; nullopt if there is none.
  std::optional<std::size_t> shortest(std::u32string_view text) const;
  std::optional<std::size_t> longest(std::u32string_view text) const;

 private:
  enum class Kind { kCharacter, kOne, kMany, kSet, kDirectories, kInDirectories };
  struct Token {
    Kind kind;
    char32_t character = 0;
    bool flag = false;  // also matches a slash; for a set: negated
    std::vector<Range> ranges = {};
    bool takes(char32_t c) const;
  };
  class States;
  template <typename Accept>
  bool run(std::u32string_view text, Accept accept) const;
  std::vector<Token> tokens_;
};

}  // namespace adaptdl::image
