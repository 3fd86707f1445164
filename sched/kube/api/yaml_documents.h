// Parses YAML in the same way as kubectl, into JSON documents with the line of each value.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

struct YamlDocument {
  using Pointer = nlohmann::json::json_pointer;

  std::string name;    // of the text
  std::string number;  // "document N: " if the text contains several documents
  nlohmann::json value;
  std::map<std::string, int> lines;          // line of each value (from 1), by the value's JSON pointer
  std::map<std::string, std::string> texts;  // each number and boolean as it is written, by its JSON pointer

  // Return the value at a pointer; null if it is missing or null. mapping() and list() throw Error if it has another
  // type.
  const nlohmann::json* find(const Pointer& at) const;
  const nlohmann::json* mapping(const Pointer& at) const;
  const nlohmann::json* list(const Pointer& at) const;
  // Returns a scalar as it is written: numbers and booleans may be strings without quotes, such as the password 1e3.
  // Throws Error if the pointer does not refer to a scalar.
  std::string text(const Pointer& at) const;
  // Returns "FILE:LINE". A missing value has no line, so the nearest enclosing value's line is returned.
  std::string place(Pointer at) const;
  // Throws Error: "FILE:LINE: why".
  [[noreturn]] void fail(const Pointer& at, std::string_view why) const;
};

// Returns all documents of a text except empty ones. Messages refer to the text as `name`. Throws an Error with the
// line if the YAML is invalid, a map has a duplicate key, or the text is too large or too deeply nested.
std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& name);
// Same, for a text that may contain only one document; throws UsageError if it has more. The value for an empty text is
// null.
YamlDocument parse_yaml_document(std::string_view text, const std::string& name);

}  // namespace adaptdl::kube
