// YAML as kubectl reads it: documents as JSON, which know the lines of their values.
//
// Threading: plain values and functions.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct YamlDocument {
  nlohmann::json value;
  std::map<std::string, int> lines;  // of each value, from 1, by its JSON pointer
};

// All documents of a text but empty ones; `name` stands for it in messages. Throws Error that names the line: it is no
// YAML, a key is twice in a map, or there is more of it than any such file needs.
std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& name);

}  // namespace adaptdl::kube
