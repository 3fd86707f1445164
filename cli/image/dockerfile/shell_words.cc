#include "image/dockerfile/shell_words.h"

#include <fmt/format.h>

#include <cctype>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "image/dockerfile/shell_pattern.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kMaxResultSize = std::size_t{8} << 20;
constexpr int kMaxSubstitutionDepth = 100;
constexpr int kEnd = -1;

bool splits_words(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name(int c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Splits the result of an expansion into words as the result is built.
class WordList {
 public:
  void add(char c) {
    if (splits_words(static_cast<unsigned char>(c)))
      close();
    else
      word_ += c;
  }
  void add(const std::string& text) {
    for (const char c : text) add(c);
  }
  void add_quoted(const std::string& text) { word_ += text; }
  std::vector<std::string> done() {
    close();
    return std::move(words_);
  }

 private:
  void close() {
    if (!word_.empty()) words_.push_back(std::move(word_));
    word_.clear();
  }
  std::string word_;
  std::vector<std::string> words_;
};

class Expander {
 public:
  Expander(std::string_view text, const WordRules& rules, const Variables& variables)
      : text_(text), rules_(rules), variables_(variables) {}

  std::string all(WordList* words) { return until(kEnd, rules_.keep_escapes, words); }

 private:
  int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : kEnd; }
  int next() { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_++]) : kEnd; }
  bool is_escape(int c) const { return c == static_cast<unsigned char>(rules_.escape); }
  void put(std::string& result, std::string_view text) const {
    if (result.size() + text.size() > kMaxResultSize)
      throw Error(fmt::format("the expanded text is larger than {} MiB", kMaxResultSize >> 20));
    result += text;
  }

  std::string until(int stop, bool keep_escapes, WordList* words);
  std::string single_quoted();
  std::string double_quoted(bool keep_escapes);
  std::string heredoc_mark();
  std::string dollar();
  std::string name();
  std::string operation(const std::string& variable, int operation);
  std::string replacement(const std::optional<std::string>& value);

  std::string_view text_;
  const WordRules& rules_;
  const Variables& variables_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Expands up to and including the character `stop`, or to the end.
std::string Expander::until(int stop, bool keep_escapes, WordList* words) {
  std::string result;
  const auto put_quoted = [&](const std::string& text) {
    put(result, text);
    if (words != nullptr) words->add_quoted(text);
  };
  for (int c = peek(); c != kEnd; c = peek()) {
    if (c == stop) {
      ++at_;
      return result;
    }
    if (c == '$') {
      const std::string value = dollar();
      put(result, value);
      if (words != nullptr) words->add(value);
    } else if (c == '<') {
      put_quoted(heredoc_mark());
    } else if (c == '\'' && !rules_.plain_quotes) {
      put_quoted(single_quoted());
    } else if (c == '"' && !rules_.plain_quotes) {
      put_quoted(double_quoted(keep_escapes));
    } else if (is_escape(c)) {
      ++at_;
      if (keep_escapes) put_quoted(std::string(1, rules_.escape));
      if (const int escaped = next(); escaped != kEnd) put_quoted(std::string(1, static_cast<char>(escaped)));
    } else {
      ++at_;
      put(result, std::string(1, static_cast<char>(c)));
      if (words != nullptr) words->add(static_cast<char>(c));
    }
  }
  if (stop != kEnd) throw Error(fmt::format("missing '{}' after '${{'", static_cast<char>(stop)));
  return result;
}

std::string Expander::single_quoted() {
  const std::size_t begin = at_;
  const std::size_t end = text_.find('\'', begin + 1);
  if (end == std::string_view::npos) throw Error("unclosed single quote");
  at_ = end + 1;
  return std::string(rules_.keep_quotes ? text_.substr(begin, at_ - begin) : text_.substr(begin + 1, end - begin - 1));
}

std::string Expander::double_quoted(bool keep_escapes) {
  ++at_;
  std::string result = rules_.keep_quotes ? "\"" : "";
  for (int c = peek(); c != kEnd; c = peek()) {
    if (c == '$') {
      put(result, dollar());
      continue;
    }
    ++at_;
    if (c == '"') return rules_.keep_quotes ? result + '"' : result;
    // In double quotes, only these characters can be escaped; before any other, the escape character is literal.
    if (is_escape(c) && (peek() == '"' || peek() == '$' || is_escape(peek()))) {
      if (keep_escapes) put(result, std::string(1, rules_.escape));
      c = next();
    }
    put(result, std::string(1, static_cast<char>(c)));
  }
  throw Error("unclosed double quote");
}

// "<<" and the spaces after it belong to the word that they begin.
std::string Expander::heredoc_mark() {
  ++at_;
  if (peek() != '<') return "<";
  std::string mark = "<<";
  for (++at_; peek() == ' ' || peek() == '\t' || peek() == '\r';) mark += static_cast<char>(next());
  return mark;
}

// Reads a variable's name, a number, or one of the shell's special parameters, which are never set here.
std::string Expander::name() {
  const std::size_t begin = at_;
  if (is_digit(peek())) {
    while (is_digit(peek())) ++at_;
  } else if (peek() != kEnd && std::string_view("@*#?-$!").find(static_cast<char>(peek())) != std::string_view::npos) {
    ++at_;
  } else {
    while (is_name(peek())) ++at_;
  }
  return std::string(text_.substr(begin, at_ - begin));
}

std::string Expander::dollar() {
  const std::size_t begin = at_++;
  const auto written = [&] { return std::string(text_.substr(begin, at_ - begin)); };
  if (peek() != '{') {
    const std::string variable = name();
    if (variable.empty()) return "$";
    const auto value = variables_(variable);
    return value || !rules_.keep_unset ? value.value_or("") : written();
  }
  ++at_;
  if (peek() == kEnd) throw Error("missing '}' after '${'");
  if (peek() == '{' || peek() == '}' || peek() == ':') throw Error("missing variable name after '${'");
  const std::string variable = name();
  const int c = next();
  if (++depth_ > kMaxSubstitutionDepth)
    throw Error(fmt::format("more than {} nested substitutions", kMaxSubstitutionDepth));
  const std::string result = operation(variable, c);
  --depth_;
  return rules_.keep_unset && !variables_(variable) ? written() : result;
}

std::string Expander::operation(const std::string& variable, int c) {
  const std::optional<std::string> value = variables_(variable);
  if (c == '}') return value.value_or("");
  if (c == kEnd) throw Error("missing '}' after '${'");
  if (c == '/') return replacement(value);
  const bool empty_is_unset = c == ':';
  const std::string written = empty_is_unset ? ":" : "";
  if (empty_is_unset) c = next();
  const bool is_pattern = c == '#' || c == '%';
  if (c == kEnd || (is_pattern && empty_is_unset) ||
      std::string_view("+-?#%").find(static_cast<char>(c)) == std::string_view::npos)
    throw Error(fmt::format("unknown substitution '${{{}{}{}': expected :- - :+ + :? ? # ## % %% / or //", variable,
                            written, c == kEnd ? "" : std::string(1, static_cast<char>(c))));
  std::string word = until('}', is_pattern || rules_.keep_escapes, nullptr);
  const bool is_set = value && !(empty_is_unset && value->empty());
  if (c == '-') return is_set ? *value : word;
  if (c == '+') return is_set ? word : "";
  if (c == '?') {
    if (is_set || rules_.keep_unset) return value.value_or("");
    throw Error(fmt::format("{}: {}", variable,
                            !word.empty() ? word
                            : value       ? "variable is empty"
                                          : "variable is not set"));
  }
  if (!value) return "";
  const bool longest = word.starts_with(static_cast<char>(c));
  if (longest) word.erase(0, 1);
  return c == '#' ? without_prefix(*value, word, longest) : without_suffix(*value, word, longest);
}

std::string Expander::replacement(const std::optional<std::string>& value) {
  const bool all = peek() == '/';
  if (all) ++at_;
  const std::string pattern = until('/', true, nullptr);
  const std::string with = until('}', true, nullptr);
  return value ? replaced(*value, pattern, with, all) : "";
}

}  // namespace

std::string expand_word(std::string_view text, const WordRules& rules, const Variables& variables) {
  return Expander(text, rules, variables).all(nullptr);
}

std::vector<std::string> expand_words(std::string_view text, const WordRules& rules, const Variables& variables) {
  WordList words;
  Expander(text, rules, variables).all(&words);
  return words.done();
}

}  // namespace adaptdl::image
