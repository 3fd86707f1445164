// Wildcard patterns as an automaton: whatever the pattern and the text, a match takes at most the product of their
// lengths. What the wildcards are written as is the affair of who builds a pattern: paths of an ignore file, shell
// patterns of a substitution.
//
// Threading: values; a const one may be used by several threads at once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adaptdl::image {

// A text as characters, and back. What is no UTF-8 becomes one character a byte, from which the byte comes back.
std::u32string characters_of(std::string_view text);
std::string text_of(std::u32string_view characters);

class Glob {
 public:
  using Range = std::pair<char32_t, char32_t>;  // first and last character
  void add_character(char32_t c);
  // One character, or any number of them; `slash` says whether '/' is among what they stand for.
  void add_one(bool slash);
  void add_many(bool slash);
  void add_set(bool negated, std::vector<Range> ranges);  // one character of a set
  void add_directories();                                 // nothing, or anything that ends with '/'
  void reverse();                                         // for matching from the end; not with directories

  bool empty() const { return tokens_.empty(); }
  bool matches(std::u32string_view text) const;
  // Whether the text, a path, or one of the directories above it is matched.
  bool matches_path(std::u32string_view path) const;
  // Whether there can be something below a directory that is matched.
  bool may_match_below(std::u32string_view directory) const;
  // Where the shortest and the longest match that begins at the text's begin ends; null if none does.
  std::optional<std::size_t> shortest(std::u32string_view text) const;
  std::optional<std::size_t> longest(std::u32string_view text) const;

 private:
  enum class Kind { kCharacter, kOne, kMany, kSet, kDirectories, kInDirectories };
  struct Token {
    Kind kind;
    char32_t character = 0;
    bool flag = false;  // may be a slash; of a set: negated
    std::vector<Range> ranges = {};
    bool takes(char32_t c) const;
  };
  class States;
  template <typename Accept>
  bool run(std::u32string_view text, Accept accept) const;
  std::vector<Token> tokens_;
};

}  // namespace adaptdl::image
