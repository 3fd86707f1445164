// Parses YAML in the same way as kubectl, into JSON documents with the line of each value.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct YamlDocument {
  nlohmann::json value;
  std::map<std::string, int> lines;  // line of each value (from 1), by the value's JSON pointer
};

// Returns all documents of a text except empty ones. Messages refer to the text as `name`. Throws an Error with the
// line if the YAML is invalid, a map has a duplicate key, or the text is too large or too deeply nested.
std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& name);

}  // namespace adaptdl::kube
