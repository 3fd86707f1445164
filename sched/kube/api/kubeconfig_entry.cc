#include "kube/api/kubeconfig_entry.h"

#include <fmt/format.h>

#include <utility>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "kube/api/check_text.h"
#include "kube/api/file.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxConfigSize = std::size_t{4} << 20;
constexpr int kMaxConfigDepth = 64;
constexpr int kMaxSettings = 10000;  // values in a plugin's settings

// yaml-cpp rejects tabs and some JSON escapes, so JSON is parsed and serialized again without them.
std::string plain_yaml(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return std::string(text);
  const json object = parse_foreign_json(text, kMaxConfigDepth);
  return object.is_discarded() ? std::string(text) : object.dump();
}

json scalar_json(const YAML::Node& node) {
  if (node.Tag() == "!") return node.Scalar();  // quoted
  const json value = parse_foreign_json(node.Scalar());
  return value.is_number() || value.is_boolean() ? value : json(node.Scalar());
}

}  // namespace

Entry Entry::parse(std::string_view text, const std::string& name, const std::filesystem::path& directory) {
  const auto source = std::make_shared<const Source>(Source{name, directory});
  if (text.size() > kMaxConfigSize)
    throw Error(fmt::format("{}: not a valid kubeconfig: larger than {} MiB", name, kMaxConfigSize >> 20));
  check_text(text, name);
  try {
    const Entry root(YAML::Load(plain_yaml(text)), source);
    if (!root.node_.IsMap() && !root.node_.IsNull())
      root.fail("not a kubeconfig; expected clusters, users and contexts");
    return root;
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format("{}:", error.mark.line + 1);
    throw Error(one_line(fmt::format("{}:{} invalid YAML: {}", name, line, error.msg)));
  }
}

Entry Entry::at(const YAML::Node& node) const {
  Entry entry(node, source_);
  if (node.IsScalar() && !is_utf8(node.Scalar())) entry.fail(kNoText);
  return entry;
}

void Entry::fail(std::string_view why) const {
  const YAML::Mark mark = node_.Mark();
  throw Error(one_line(mark.is_null() ? fmt::format("{}: {}", source_->name, why)
                                      : fmt::format("{}:{}: {}", source_->name, mark.line + 1, why)));
}

std::vector<std::pair<std::string, Entry>> Entry::fields() const {
  if (node_.IsNull()) return {};
  if (!node_.IsMap()) fail("expected a mapping ('name: value')");
  std::vector<std::pair<std::string, Entry>> fields;
  for (const auto& pair : node_)
    if (pair.first.IsScalar()) fields.emplace_back(at(pair.first).scalar(), at(pair.second));
  return fields;
}

std::optional<Entry> Entry::find(std::string_view key) const {
  if (node_.IsNull()) return {};
  if (!node_.IsMap()) fail(fmt::format("expected a mapping with '{}'", key));
  std::optional<Entry> found;
  for (const auto& pair : node_) {
    if (!pair.first.IsScalar() || pair.first.Scalar() != key) continue;
    if (found) at(pair.first).fail(fmt::format("duplicate key '{}'", key));
    found = at(pair.second);
  }
  if (found && found->node_.IsNull()) return {};
  return found;
}

std::vector<Entry> Entry::list(std::string_view key) const {
  const std::optional<Entry> entry = find(key);
  if (!entry) return {};
  if (!entry->node_.IsSequence()) entry->fail(fmt::format("'{}' must be a list", key));
  std::vector<Entry> items;
  for (const auto& item : entry->node_) items.push_back(at(item));
  return items;
}

std::string Entry::scalar() const {
  if (!node_.IsScalar()) fail("expected a string");
  return node_.Scalar();
}

std::string Entry::text(std::string_view key) const {
  const std::optional<Entry> entry = find(key);
  if (!entry) return "";
  if (!entry->node_.IsScalar()) entry->fail(fmt::format("'{}' must be a string", key));
  return entry->node_.Scalar();
}

bool Entry::flag(std::string_view key) const {
  const std::optional<Entry> entry = find(key);
  if (!entry) return false;
  bool value = false;
  if (!entry->node_.IsScalar() || !YAML::convert<bool>::decode(entry->node_, value))
    entry->fail(fmt::format("'{}' must be true or false", key));
  return value;
}

std::string Entry::path(std::string_view key) const {
  const std::string path = text(key);
  return path.empty() ? "" : (source_->directory / path).lexically_normal().string();
}

std::string Entry::data(std::string_view key) const {
  const std::optional<Entry> entry = find(key);
  if (!entry) return "";
  const std::optional<std::string> bytes = decode_base64(text(key));
  if (!bytes) entry->fail(fmt::format("'{}' is not valid base64", key));
  return *bytes;
}

nlohmann::json Entry::json() const {
  int left = kMaxSettings;
  return json(kMaxConfigDepth, left);
}

nlohmann::json Entry::json(int depth, int& left) const {
  if (depth == 0 || --left < 0) fail("too many or too deeply nested values");
  if (node_.IsScalar()) return scalar_json(node_);
  if (node_.IsSequence()) {
    auto array = nlohmann::json::array();
    for (const auto& item : node_) array.push_back(at(item).json(depth - 1, left));
    return array;
  }
  if (!node_.IsMap()) return nullptr;
  auto object = nlohmann::json::object();
  for (const auto& [key, value] : fields()) object[key] = value.json(depth - 1, left);
  return object;
}

}  // namespace adaptdl::kube
