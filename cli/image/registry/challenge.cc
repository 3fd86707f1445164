#include "image/registry/challenge.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

// Returns whether RFC 9110 allows the character in a token.
bool is_token_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  bool skip(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void skip_space() {
    while (skip(' ') || skip('\t')) {
    }
  }
  std::string token() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_token_letter);
    const auto size = static_cast<std::size_t>(end - rest_.begin());
    const std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  std::string lower_token() { return lower(token()); }
  // Reads a token or a quoted string; nullopt if the string is not terminated.
  std::optional<std::string> value() {
    if (!skip('"')) return token();
    std::string text;
    while (!rest_.empty()) {
      if (skip('"')) return text;
      if (rest_.front() == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
      text += rest_.front();
      rest_.remove_prefix(1);
    }
    return {};
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string Challenge::parameter(const std::string& name) const {
  const auto found = parameters.find(name);
  return found == parameters.end() ? "" : found->second;
}

std::vector<Challenge> parse_challenges(std::string_view header) {
  std::vector<Challenge> challenges;
  Reader reader(header);
  for (;;) {
    reader.skip_space();
    while (reader.skip(',')) reader.skip_space();
    if (reader.at_end()) return challenges;
    const std::string word = reader.lower_token();
    if (word.empty()) return challenges;
    Reader ahead = reader;
    ahead.skip_space();
    if (!ahead.skip('=')) {
      challenges.push_back({word, {}});
      continue;
    }
    // The word is a parameter of the last challenge.
    ahead.skip_space();
    const std::optional<std::string> value = ahead.value();
    if (!value || challenges.empty()) return challenges;
    challenges.back().parameters.emplace(word, *value);
    reader = ahead;
  }
}

}  // namespace adaptdl::image
