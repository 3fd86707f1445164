// Texts as numbers, for the language models.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace programs {

enum class TextLevel { kWord, kCharacter };

// The tokens of a UTF-8 file: characters, or words in lower case with punctuation marks and line ends ("<eos>") as
// words of their own. Throws UsageError, which names --data and the file, if it cannot be read or holds nothing.
std::vector<std::string> read_tokens(const std::string& path, TextLevel level);

// Numbers for tokens. The first numbers are for `reserved` ones such as "<unk>", the others are in order of frequency.
class Vocabulary {
 public:
  // Of the `limit` most frequent tokens; equally frequent ones in order of appearance. Reserved ones are not counted
  // in.
  static Vocabulary of(const std::vector<std::string>& tokens, std::vector<std::string> reserved, std::size_t limit);
  // Of a file with a token a line. Throws UsageError, which names `option` and the file, if it cannot be read.
  static Vocabulary read(const std::string& path, const std::string& option, std::vector<std::string> reserved);

  // The number of a token; of the first reserved one if it is not known.
  std::int64_t id(const std::string& token) const;
  const std::string& token(std::int64_t id) const { return tokens_.at(static_cast<std::size_t>(id)); }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

  // int64 [tokens].
  torch::Tensor ids(const std::vector<std::string>& tokens) const;

 private:
  void add(std::string token);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace programs
