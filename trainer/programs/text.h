// Converts texts to numbers for the language models.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace programs {

enum class TextLevel { kWord, kCharacter };

// Returns the tokens of a UTF-8 file: its characters, or its words in lower case. Punctuation marks and line ends
// ("<eos>") are words, too. Throws UsageError, which names --data and the file, if the file cannot be read or is empty.
std::vector<std::string> read_tokens(const std::string& path, TextLevel level);

// Assigns numbers to tokens, beginning with the `reserved` tokens, such as "<unk>".
class Vocabulary {
 public:
  // Numbers the reserved tokens first, then the `limit` most frequent tokens, beginning with the most frequent one.
  // Equally frequent tokens are in the order of their first appearance.
  static Vocabulary of(const std::vector<std::string>& tokens, std::vector<std::string> reserved, std::size_t limit);
  // Numbers the tokens of a file, one per line. Throws UsageError, which names `option` and the file, if the file
  // cannot be read.
  static Vocabulary read(const std::string& path, const std::string& option, std::vector<std::string> reserved);

  // Returns the number of a token, or the first reserved token's number if the token is unknown.
  std::int64_t id(const std::string& token) const;
  const std::string& token(std::int64_t id) const { return tokens_.at(static_cast<std::size_t>(id)); }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

  // Returns the numbers of `tokens`, int64 [tokens].
  torch::Tensor ids(const std::vector<std::string>& tokens) const;

 private:
  void add(std::string token);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace programs
