#include "image/base/glob.h"

#include <algorithm>
#include <cstdint>

namespace adaptdl::image {
namespace {

constexpr char32_t kStrayByte = 0xdc00;  // in the surrogate range, which UTF-8 never encodes

// Returns the length in bytes of the character at the start of the text; 0 if that character is not valid UTF-8.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Reject overlong forms, surrogates, and values beyond U+10FFFF.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    char32_t c = length == 0 ? kStrayByte + first : length == 1 ? first : first & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) c = (c << 6) | (static_cast<unsigned char>(text[i]) & 0x3fu);
    characters += c;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return characters;
}

std::string text_of(std::u32string_view characters) {
  std::string text;
  for (const char32_t c : characters) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c >= kStrayByte && c < kStrayByte + 0x100) {
      text += static_cast<char>(c - kStrayByte);
    } else if (c < 0x800) {
      text += {static_cast<char>(0xc0 | (c >> 6)), tail(0)};
    } else if (c < 0x10000) {
      text += {static_cast<char>(0xe0 | (c >> 12)), tail(6), tail(0)};
    } else {
      text += {static_cast<char>(0xf0 | (c >> 18)), tail(12), tail(6), tail(0)};
    }
  }
  return text;
}

bool Glob::Token::takes(char32_t c) const {
  switch (kind) {
    case Kind::kCharacter:
      return c == character;
    case Kind::kOne:
    case Kind::kMany:
      return flag || c != U'/';
    case Kind::kSet:
      return flag != std::any_of(ranges.begin(), ranges.end(),
                                 [&](const Range& range) { return range.first <= c && c <= range.second; });
    case Kind::kDirectories:
      return false;
    case Kind::kInDirectories:
      return true;
  }
  return false;
}

void Glob::add_character(char32_t c) { tokens_.push_back({Kind::kCharacter, c}); }
void Glob::add_one(bool slash) { tokens_.push_back({Kind::kOne, 0, slash}); }
void Glob::add_many(bool slash) {
  if (tokens_.empty() || tokens_.back().kind != Kind::kMany || tokens_.back().flag != slash)
    tokens_.push_back({Kind::kMany, 0, slash});
}
void Glob::add_set(bool negated, std::vector<Range> ranges) {
  tokens_.push_back({Kind::kSet, 0, negated, std::move(ranges)});
}
void Glob::add_directories() {
  tokens_.push_back({Kind::kDirectories});
  tokens_.push_back({Kind::kInDirectories});
}
void Glob::reverse() { std::reverse(tokens_.begin(), tokens_.end()); }

// The set of positions in a pattern that a match may have reached.
class Glob::States {
 public:
  explicit States(const Glob& glob) : glob_(&glob), added_(glob.tokens_.size() + 1, 0) {}
  void clear() {
    places_.clear();
    ++round_;
  }
  void add(std::size_t place) {
    for (; added_[place] != round_; ++place) {
      added_[place] = round_;
      places_.push_back(place);
      if (place == glob_->tokens_.size()) return;
      const Kind kind = glob_->tokens_[place].kind;
      if (kind != Kind::kDirectories && kind != Kind::kMany) return;
      if (kind == Kind::kDirectories) add_place(++place);  // enter the directories, or skip them
    }
  }
  // Adds only this position, not those that can be reached from it without another character.
  void add_place(std::size_t place) {
    if (added_[place] == round_) return;
    added_[place] = round_;
    places_.push_back(place);
  }
  bool at_end() const { return added_.back() == round_; }
  bool goes_on() const { return places_.size() > (at_end() ? 1u : 0u); }
  const std::vector<std::size_t>& places() const { return places_; }

 private:
  const Glob* glob_;
  std::vector<std::size_t> places_;
  std::vector<std::uint64_t> added_;
  std::uint64_t round_ = 1;
};

// Stops when `accept` returns false or no match can continue. Returns whether a match could continue beyond the text.
template <typename Accept>
bool Glob::run(std::u32string_view text, Accept accept) const {
  States now(*this), next(*this);
  now.add(0);
  for (std::size_t at = 0;; ++at) {
    if (now.at_end() && !accept(at)) return false;
    if (at == text.size() || now.places().empty()) return now.goes_on();
    next.clear();
    for (const std::size_t place : now.places()) {
      if (place == tokens_.size() || !tokens_[place].takes(text[at])) continue;
      const Kind kind = tokens_[place].kind;
      if (kind == Kind::kInDirectories) {
        next.add_place(place);
        if (text[at] == U'/') next.add(place + 1);
      } else {
        next.add(kind == Kind::kMany ? place : place + 1);
      }
    }
    std::swap(now, next);
  }
}

bool Glob::matches(std::u32string_view text) const { return longest(text) == text.size(); }

bool Glob::matches_path(std::u32string_view path) const {
  bool matched = false;
  run(path, [&](std::size_t at) {
    matched = at == path.size() || path[at] == U'/';
    return !matched;
  });
  return matched;
}

bool Glob::may_match_below(std::u32string_view directory) const {
  std::u32string below(directory);
  below += U'/';
  return run(below, [](std::size_t) { return true; });
}

std::optional<std::size_t> Glob::shortest(std::u32string_view text) const {
  std::optional<std::size_t> end;
  run(text, [&](std::size_t at) {
    end = at;
    return false;
  });
  return end;
}

std::optional<std::size_t> Glob::longest(std::u32string_view text) const {
  std::optional<std::size_t> end;
  run(text, [&](std::size_t at) {
    end = at;
    return true;
  });
  return end;
}

}  // namespace adaptdl::image
