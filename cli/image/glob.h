// Wildcard patterns as an automaton: the time of a match is at most proportional to the product of the lengths of
// pattern and text. The callers that build patterns define the syntax of the wildcards: paths in an ignore file, or
// shell patterns of a substitution.
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

// Converts a text to characters, and back. A byte that is not valid UTF-8 becomes one character, and is restored.
std::u32string characters_of(std::string_view text);
std::string text_of(std::u32string_view characters);

class Glob {
 public:
  using Range = std::pair<char32_t, char32_t>;  // first and last character
  void add_character(char32_t c);
  // Adds one character, or any number of them; `slash` tells whether they may include '/'.
  void add_one(bool slash);
  void add_many(bool slash);
  void add_set(bool negated, std::vector<Range> ranges);  // one character of a set
  void add_directories();                                 // nothing, or anything that ends with '/'
  void reverse();                                         // for matching from the end; not with add_directories()

  bool empty() const { return tokens_.empty(); }
  bool matches(std::u32string_view text) const;
  // Returns whether the path, or one of the directories above it, matches.
  bool matches_path(std::u32string_view path) const;
  // Returns whether a path below the directory can match.
  bool may_match_below(std::u32string_view directory) const;
  // Returns the end of the shortest or longest match that begins at the start of the text; null if there is none.
  std::optional<std::size_t> shortest(std::u32string_view text) const;
  std::optional<std::size_t> longest(std::u32string_view text) const;

 private:
  enum class Kind { kCharacter, kOne, kMany, kSet, kDirectories, kInDirectories };
  struct Token {
    Kind kind;
    char32_t character = 0;
    bool flag = false;  // matches a slash, too; of a set: negated
    std::vector<Range> ranges = {};
    bool takes(char32_t c) const;
  };
  class States;
  template <typename Accept>
  bool run(std::u32string_view text, Accept accept) const;
  std::vector<Token> tokens_;
};

}  // namespace adaptdl::image
