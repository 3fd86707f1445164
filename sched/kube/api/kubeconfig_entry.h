// A part of a kubeconfig file that knows its position, so that errors can name the file and the line.
//
// Threading: all entries of one text must be used by one thread at a time. Lifetime: an entry keeps the nodes of its
// text alive.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::kube {

class Entry {
 public:
  // Parses a whole text. Messages refer to the text as `name`; relative paths are resolved against `directory`. Throws
  // Error.
  static Entry parse(std::string_view text, const std::string& name, const std::filesystem::path& directory);

  // Returns the value for a key in a map; nullopt if it is missing or null. Throws Error if this entry is not a map.
  std::optional<Entry> find(std::string_view key) const;
  // Returns the items of the list under a key; empty if the key is missing. Throws Error if the value is not a list.
  std::vector<Entry> list(std::string_view key) const;
  // Return the text or boolean under a key; "" or false if the key is missing. Throw Error if the value has another
  // type.
  std::string text(std::string_view key) const;
  bool flag(std::string_view key) const;
  // Returns the path under a key, resolved against the kubeconfig's directory; "" if the key is missing.
  std::string path(std::string_view key) const;
  // Returns the value under a key, decoded from base64. Throws Error.
  std::string data(std::string_view key) const;
  // Returns this entry's text. Throws Error if it is not a scalar.
  std::string scalar() const;
  // Returns all fields of a map.
  std::vector<std::pair<std::string, Entry>> fields() const;
  // Converts the entry to JSON. Throws Error if the entry is too large or too deeply nested.
  nlohmann::json json() const;

  const std::filesystem::path& directory() const { return source_->directory; }
  const std::string& file() const { return source_->name; }
  // Throws Error: "FILE:LINE: why".
  [[noreturn]] void fail(std::string_view why) const;

 private:
  struct Source {
    std::string name;
    std::filesystem::path directory;
  };
  Entry(YAML::Node node, std::shared_ptr<const Source> source) : node_(std::move(node)), source_(std::move(source)) {}
  // Throws Error if an escape has produced invalid UTF-8.
  Entry at(const YAML::Node& node) const;
  nlohmann::json json(int depth, int& left) const;

  YAML::Node node_;
  std::shared_ptr<const Source> source_;
};

}  // namespace adaptdl::kube
