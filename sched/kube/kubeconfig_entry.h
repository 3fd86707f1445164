// A part of a kubeconfig file, which knows where it stands, so that whatever is wrong with it can be told by file and
// line.
//
// Threading: as a value, one thread at a time with all entries of a text. Lifetime: keeps what it was read from.
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
  // The whole text, which `name` stands for in messages; relative paths in it are meant from `directory`. Throws Error.
  static Entry parse(std::string_view text, const std::string& name, const std::filesystem::path& directory);

  // What a map has under a key, if it has it and it is not null. Throws Error if this is no map.
  std::optional<Entry> find(std::string_view key) const;
  // The parts of a list; none if the key is not there. Throws Error if it is no list.
  std::vector<Entry> list(std::string_view key) const;
  // The text, or the value as true or false, under a key; "" and false if it is not there. Throw Error if it is
  // something else.
  std::string text(std::string_view key) const;
  bool flag(std::string_view key) const;
  // A path under a key, from the kubeconfig's directory if it is relative; "" if it is not there.
  std::string path(std::string_view key) const;
  // Decoded from base64. Throws Error.
  std::string data(std::string_view key) const;
  // The text that this is.
  std::string scalar() const;
  // All that a map has.
  std::vector<std::pair<std::string, Entry>> fields() const;
  // As JSON. Throws Error if it is too much for any sensible setting.
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
  // Throws Error if an escape has made it something else than text.
  Entry at(const YAML::Node& node) const;
  nlohmann::json json(int depth, int& left) const;

  YAML::Node node_;
  std::shared_ptr<const Source> source_;
};

}  // namespace adaptdl::kube
