// An instruction's --flags.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

class Flags {
 public:
  // kRefused marks a BuildKit flag that is not supported here; `reason` completes the error message.
  enum class Kind { kBool, kText, kTexts, kRefused };
  struct Known {
    std::string_view name;
    Kind kind;
    std::string_view reason = "";
  };
  // `words` are "--name" or "--name=value". Throws an Error that names the instruction and the flag, without file or
  // line.
  Flags(std::string_view instruction, const std::vector<std::string>& words, const std::vector<Known>& known);

  bool given(const std::string& name) const { return values_.contains(name); }
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;  // "" if not given; a given value is never empty
  std::vector<std::string> texts(const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace adaptdl::image
