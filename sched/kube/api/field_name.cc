#include "kube/api/field_name.h"

#include <algorithm>
#include <vector>

namespace adaptdl::kube {

std::string field_name(const nlohmann::json::json_pointer& path) {
  std::vector<std::string> words;
  for (nlohmann::json::json_pointer rest = path; !rest.empty(); rest.pop_back()) words.push_back(rest.back());
  std::string name;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const bool number = !word->empty() && std::ranges::all_of(*word, [](char c) { return c >= '0' && c <= '9'; });
    name += number ? '[' + *word + ']' : (name.empty() ? "" : ".") + *word;
  }
  return name;
}

}  // namespace adaptdl::kube
