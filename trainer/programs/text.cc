#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "adaptdl/error.h"

namespace programs {

namespace {

std::string read_file(const std::string& path, const std::string& option) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  std::ifstream file(path, std::ios::binary);
  if (!file || directory) {
    throw adaptdl::UsageError(
        fmt::format("cannot read text file '{1}' ({0}): {2}", option, path, std::strerror(directory ? EISDIR : errno)));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the number of bytes in a UTF-8 character that begins with `first`, or 1 if no character begins with it.
std::size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

std::vector<std::string> split_characters(const std::string& text) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size(); at += characters.back().size())
    characters.push_back(text.substr(at, character_bytes(text[at])));
  return characters;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || byte >= 0x80 || c == '\'') {
      word += static_cast<char>(std::tolower(byte));
      continue;
    }
    end_word();
    if (c == '\n') {
      words.emplace_back("<eos>");
    } else if (std::ispunct(byte)) {
      words.emplace_back(1, c);
    }
  }
  end_word();
  return words;
}

}  // namespace

std::vector<std::string> read_tokens(const std::string& path, TextLevel level) {
  const auto text = read_file(path, "--data");
  auto tokens = level == TextLevel::kWord ? split_words(text) : split_characters(text);
  if (tokens.empty()) throw adaptdl::UsageError(fmt::format("text file '{}' (--data) is empty", path));
  return tokens;
}

void Vocabulary::add(std::string token) {
  if (ids_.emplace(token, size()).second) tokens_.push_back(std::move(token));
}

Vocabulary Vocabulary::of(const std::vector<std::string>& tokens, std::vector<std::string> reserved,
                          std::size_t limit) {
  std::unordered_map<std::string, std::size_t> counts;
  std::vector<std::string> order;
  for (const auto& token : tokens) {
    if (++counts[token] == 1) order.push_back(token);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return counts.at(a) > counts.at(b); });
  Vocabulary vocabulary;
  for (auto& token : reserved) vocabulary.add(std::move(token));
  order.resize(std::min(order.size(), limit));
  for (auto& token : order) vocabulary.add(std::move(token));
  return vocabulary;
}

Vocabulary Vocabulary::read(const std::string& path, const std::string& option, std::vector<std::string> reserved) {
  Vocabulary vocabulary;
  for (auto& token : reserved) vocabulary.add(std::move(token));
  const auto text = read_file(path, option);
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end > begin) vocabulary.add(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return vocabulary;
}

std::int64_t Vocabulary::id(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? 0 : found->second;
}

torch::Tensor Vocabulary::ids(const std::vector<std::string>& tokens) const {
  auto numbers = torch::empty({static_cast<std::int64_t>(tokens.size())}, torch::kLong);
  std::transform(tokens.begin(), tokens.end(), numbers.data_ptr<std::int64_t>(),
                 [this](const auto& token) { return id(token); });
  return numbers;
}

}  // namespace programs
