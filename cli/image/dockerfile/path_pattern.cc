#include "image/dockerfile/path_pattern.h"

#include <utility>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::image {
namespace {

// Parses the wildcards of Go's filepath.Match and Moby's "**".
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(characters_of(pattern)) {}

  Glob read() {
    // Moby treats "**" before plain text as a suffix match: "**.md" matches a/b.md. If another wildcard follows, "**"
    // is not a suffix match.
    const bool any_ending = pattern_.starts_with(U"**") && !pattern_.starts_with(U"**/") &&
                            pattern_.find_first_of(U"*?[]\\", 2) == std::u32string::npos;
    while (at_ < pattern_.size()) {
      const char32_t c = pattern_[at_++];
      if (c == U'*' && peek() == U'*') {
        ++at_;
        if (peek() == U'/') ++at_;
        if (at_ == pattern_.size() || any_ending)
          glob_.add_many(true);
        else
          glob_.add_directories();
      } else if (c == U'*') {
        glob_.add_many(false);
      } else if (c == U'?') {
        glob_.add_one(false);
      } else if (c == U'[') {
        add_set();
      } else {
        glob_.add_character(c == U'\\' ? next("trailing \\") : c);
      }
    }
    return glob_;
  }

 private:
  char32_t peek() const { return at_ < pattern_.size() ? pattern_[at_] : U'\0'; }
  char32_t next(const char* missing) {
    if (at_ == pattern_.size()) throw Error(missing);
    return pattern_[at_++];
  }
  char32_t set_character() {
    constexpr const char* kOpen = "missing ']' after '['";
    const char32_t c = next(kOpen);
    if (c == U'-' || c == U']') throw Error("'-' and ']' in '[…]' must be escaped with \\");
    return c == U'\\' ? next(kOpen) : c;
  }
  void add_set() {
    const bool negated = peek() == U'^';
    if (negated) ++at_;
    std::vector<Glob::Range> ranges;
    while (ranges.empty() || peek() != U']') {
      const char32_t first = set_character();
      char32_t last = first;
      if (peek() == U'-') {
        ++at_;
        last = set_character();
      }
      if (last < first) throw Error("a range in '[…]' ends before it begins");
      ranges.emplace_back(first, last);
    }
    ++at_;
    glob_.add_set(negated, std::move(ranges));
  }

  std::u32string pattern_;
  std::size_t at_ = 0;
  Glob glob_;
};

}  // namespace

Glob path_pattern(std::string_view pattern) { return PatternReader(pattern).read(); }

bool is_pattern(std::string_view text) { return text.find_first_of("*?[\\") != std::string_view::npos; }

}  // namespace adaptdl::image
