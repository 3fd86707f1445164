#include "image/dockerfile/instruction_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/text_parts.h"
#include "image/dockerfile/shell_words.h"

namespace adaptdl::image {
namespace {

const Variables kNoVariables = [](const std::string&) -> std::optional<std::string> { return {}; };

}  // namespace

std::vector<std::string> take_flags(std::string_view& text, char escape) {
  std::vector<std::string> flags;
  for (text = trimmed(text); text.starts_with("--"); text = trimmed(text)) {
    std::string word;
    char quote = '\0';
    std::size_t at = 0;
    for (; at < text.size() && (quote != '\0' || !is_space(text[at])); ++at) {
      const char c = text[at];
      if (c == escape) {
        if (++at < text.size()) word += text[at];
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == quote) {
        quote = '\0';
      } else {
        word += c;
      }
    }
    text.remove_prefix(std::min(at, text.size()));
    if (word == "--") break;
    flags.push_back(word);
  }
  text = trimmed(text);
  return flags;
}

std::vector<std::string> quoted_words(std::string_view text, char escape) {
  std::vector<std::string> words;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    std::string word;
    char quote = '\0';
    std::size_t at = 0;
    for (; at < text.size() && (quote != '\0' || !is_space(text[at])); ++at) {
      const char c = text[at];
      const bool last = at + 1 == text.size();
      if (c == escape && quote != '\'') {
        if (last) continue;
        word += c;
        ++at;
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == quote) {
        quote = '\0';
      }
      word += text[at];
    }
    text.remove_prefix(std::min(at, text.size()));
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::optional<std::vector<std::string>> json_words(std::string_view text) {
  using nlohmann::json;
  text = trimmed(text);
  if (!text.starts_with('[')) return {};
  // The parser limits the nesting depth, but no array of strings exceeds the limit.
  const json list = parse_foreign_json(text);
  if (!list.is_array()) return {};
  std::vector<std::string> words;
  for (const json& word : list) {
    if (!word.is_string()) throw Error("the JSON array must contain only strings");
    words.push_back(word.get<std::string>());
  }
  return words;
}

std::optional<Heredoc> heredoc_of(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of("0123456789"), word.size()));
  if (!word.starts_with("<<")) return {};
  word.remove_prefix(2);
  Heredoc heredoc;
  heredoc.strip_tabs = word.starts_with('-');
  if (heredoc.strip_tabs) word.remove_prefix(1);
  const std::string_view name = word.substr(std::min(word.find_first_not_of(kSpaces), word.size()));
  if (name.empty() || name.find('<') != std::string_view::npos) return {};
  const std::vector<std::string> words = expand_words(name, {.keep_unset = true}, kNoVariables);
  if (words.size() != 1) return {};
  heredoc.name = words[0];
  const std::string quoted = expand_word(name, {.keep_quotes = true, .keep_unset = true}, kNoVariables);
  const auto quotes = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return c == '\'' || c == '"'; });
  };
  heredoc.expand = quotes(quoted) == quotes(heredoc.name);
  return heredoc;
}

std::vector<Heredoc> heredocs_of(std::string_view line) {
  std::vector<Heredoc> heredocs;
  if (line.find("<<") == std::string_view::npos) return heredocs;
  std::vector<std::string> words;
  try {
    words = expand_words(line, {.keep_quotes = true, .keep_escapes = true, .keep_unset = true}, kNoVariables);
  } catch (const Error&) {
    // The line does not follow the Dockerfile's rules for words; the shell interprets it.
    return heredocs;
  }
  for (const std::string& word : words)
    if (auto heredoc = heredoc_of(word)) heredocs.push_back(std::move(*heredoc));
  return heredocs;
}

std::string without_tabs(std::string_view content) {
  std::string result;
  bool at_begin = true;
  for (const char c : content) {
    if (at_begin && c == '\t') continue;
    at_begin = c == '\n';
    result += c;
  }
  return result;
}

}  // namespace adaptdl::image
