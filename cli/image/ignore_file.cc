#include "image/ignore_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "adaptdl/error.h"
#include "image/clean_path.h"
#include "image/one_line.h"
#include "image/text_parts.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{4} << 20;

// The wildcards of Go's filepath.Match and moby's "**".
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(characters_of(pattern)) {}

  Glob read() {
    // moby takes "**" before a mere name as any ending: "**.md" has what it would not have with a wildcard in it.
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
        glob_.add_character(c == U'\\' ? next("nothing follows its last \\") : c);
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
    constexpr const char* kOpen = "its '[' has no ']'";
    const char32_t c = next(kOpen);
    if (c == U'-' || c == U']') throw Error("'-' and ']' stand in '[…]' only after a \\");
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
      if (last < first) throw Error("a range in its '[…]' ends before it begins");
      ranges.emplace_back(first, last);
    }
    ++at_;
    glob_.add_set(negated, std::move(ranges));
  }

  std::u32string pattern_;
  std::size_t at_ = 0;
  Glob glob_;
};

std::optional<std::string> read(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  if (!fs::is_regular_file(file, error)) throw Error(fmt::format("{} is to be a file", file.string()));
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) throw Error(fmt::format("{} cannot be read", file.string()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestFile)
    throw Error(fmt::format("{}: over {} MiB is no ignore file", file.string(), kLargestFile >> 20));
  return text;
}

}  // namespace

void IgnoreFile::add(std::string_view line) {
  std::string_view text = trimmed(line);
  if (text.empty()) return;
  const bool taken_back = text.front() == '!';
  if (taken_back) text = trimmed(text.substr(1));
  if (text.empty()) throw Error("'!' takes back a pattern, and there is none after it");
  std::string path = clean_path(text);
  if (path.size() > 1 && path.front() == '/') path.erase(0, 1);
  try {
    patterns_.push_back({PatternReader(path).read(), taken_back});
  } catch (const Error& error) {
    throw Error(fmt::format("'{}' is no pattern: {}", text, error.what()));
  }
}

IgnoreFile IgnoreFile::parse(std::string_view text, const std::string& name) {
  IgnoreFile ignore;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with('#')) continue;
    try {
      ignore.add(line);
    } catch (const Error& error) {
      throw Error(one_line(fmt::format("{}:{}: {}", name, number, error.what())));
    }
  }
  return ignore;
}

IgnoreFile IgnoreFile::of_patterns(const std::vector<std::string>& patterns) {
  IgnoreFile ignore;
  for (const std::string& pattern : patterns) ignore.add(pattern);
  return ignore;
}

IgnoreFile IgnoreFile::of_build(const fs::path& context, const fs::path& dockerfile) {
  for (const fs::path& file : {fs::path(dockerfile.string() + ".dockerignore"), context / ".dockerignore"})
    if (const auto text = read(file)) return parse(*text, file.string());
  return {};
}

bool IgnoreFile::ignores(std::string_view path) const {
  const std::u32string characters = characters_of(path);
  bool ignored = false;
  for (const Pattern& pattern : patterns_)
    if (pattern.taken_back == ignored && pattern.glob.matches_path(characters)) ignored = !pattern.taken_back;
  return ignored;
}

bool IgnoreFile::skips_directory(std::string_view path) const {
  if (!ignores(path)) return false;
  const std::u32string directory = characters_of(path);
  return std::none_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
    return pattern.taken_back && pattern.glob.may_match_below(directory);
  });
}

}  // namespace adaptdl::image
