#include "kube/api/yaml_documents.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <sstream>
#include <string_view>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "kube/api/check_text.h"
#include "kube/api/field_name.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDocumentSize = std::size_t{4} << 20;
constexpr int kMaxDocumentDepth = 64;
constexpr int kMaxDocumentValues = 100'000;  // aliases may multiply values

// Converts an unquoted scalar. The values yes and on are true, as they are in YAML 1.1, which kubectl uses.
json plain_scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  bool flag = false;
  if (text.size() > 1 && YAML::convert<bool>::decode(node, flag)) return flag;
  const json value = parse_foreign_json(text);
  if (value.is_number() && (!value.is_number_float() || std::isfinite(value.get<double>()))) return value;
  return text;
}

class DocumentReader {
 public:
  explicit DocumentReader(YamlDocument& document) : document_(document) {}

  json read(const YAML::Node& node, const std::string& at, int depth) {
    if (depth == 0 || --left_ < 0) fail(node, "too many or too deeply nested values");
    document_.lines[at] = node.Mark().line + 1;
    check(node);
    if (node.IsScalar()) {
      const bool quoted = node.Tag() == "!" || node.Tag().ends_with(":str");
      json value = quoted ? json(node.Scalar()) : plain_scalar(node);
      if (!value.is_string()) document_.texts[at] = node.Scalar();
      return value;
    }
    if (node.IsSequence()) {
      json array = json::array();
      for (const auto& item : node) array.push_back(read(item, fmt::format("{}/{}", at, array.size()), depth - 1));
      return array;
    }
    if (!node.IsMap()) return nullptr;
    json object = json::object();
    for (const auto& pair : node) {
      const YAML::Node &key = pair.first, &value = pair.second;
      if (!key.IsScalar()) fail(key, "a key must be a string");
      check(key);
      const std::string& word = key.Scalar();
      if (word == "<<" && key.Tag() != "!") fail(key, "merge keys (<<) are not supported; write out the merged fields");
      if (object.contains(word)) fail(key, fmt::format("duplicate key '{}'", word));
      const std::string pointer = (json::json_pointer(at) / word).to_string();
      object[word] = read(value, pointer, depth - 1);
      // Errors in a value are reported at its key.
      document_.lines[pointer] = key.Mark().line + 1;
    }
    return object;
  }

 private:
  void check(const YAML::Node& node) const {
    // yaml-cpp decodes some escapes to a single byte.
    if (node.IsScalar() && !is_utf8(node.Scalar()))
      fail(node, "unsupported escape (such as \\N or \\_); write the character itself");
  }
  [[noreturn]] void fail(const YAML::Node& node, std::string_view why) const {
    throw Error(one_line(fmt::format("{}:{}: {}", document_.name, node.Mark().line + 1, why)));
  }

  YamlDocument& document_;
  int left_ = kMaxDocumentValues;
};

// Before a comma or another character that cannot begin a value, yaml-cpp finds an endless sequence of empty documents.
class EndlessDocuments : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos == last_) throw YAML::ParserException(mark, "unexpected character");
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int last_ = -1;
};

void refuse_endless(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  EndlessDocuments documents;
  while (parser.HandleNextDocument(documents)) {
  }
}

std::vector<YAML::Node> load(const std::string& text) {
  try {
    refuse_endless(text);
    return YAML::LoadAll(text);
  } catch (const YAML::Exception&) {
    // yaml-cpp rejects some JSON, such as surrogate pairs. Serialized again, without these, the text has only one line.
    const json value = parse_foreign_json(text, kMaxDocumentDepth);
    if (!value.is_structured()) throw;
    return {YAML::Load(value.dump())};
  }
}

}  // namespace

const json* YamlDocument::find(const Pointer& at) const {
  return value.contains(at) && !value.at(at).is_null() ? &value.at(at) : nullptr;
}

const json* YamlDocument::mapping(const Pointer& at) const {
  const json* found = find(at);
  if (found != nullptr && !found->is_object()) fail(at, fmt::format("{} must be a mapping", field_name(at)));
  return found;
}

const json* YamlDocument::list(const Pointer& at) const {
  const json* found = find(at);
  if (found != nullptr && !found->is_array()) fail(at, fmt::format("{} must be a list", field_name(at)));
  return found;
}

std::string YamlDocument::text(const Pointer& at) const {
  if (const auto written = texts.find(at.to_string()); written != texts.end()) return written->second;
  const json* found = find(at);
  if (found == nullptr || !found->is_string()) fail(at, fmt::format("{} must be a string", field_name(at)));
  return *found;
}

std::string YamlDocument::place(Pointer at) const {
  while (!at.empty() && !lines.contains(at.to_string())) at.pop_back();
  const auto line = lines.find(at.to_string());
  return line == lines.end() ? name : fmt::format("{}:{}", name, line->second);
}

void YamlDocument::fail(const Pointer& at, std::string_view why) const {
  throw Error(one_line(fmt::format("{}: {}{}", place(at), number, why)));
}

std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& name) {
  if (text.size() > kMaxDocumentSize) throw Error(fmt::format("{}: larger than {} MiB", name, kMaxDocumentSize >> 20));
  check_text(text, name);
  std::vector<YamlDocument> documents;
  try {
    for (const YAML::Node& node : load(std::string(text))) {
      if (!node.IsDefined() || node.IsNull()) continue;
      YamlDocument& document = documents.emplace_back();
      document.name = name;
      document.value = DocumentReader(document).read(node, "", kMaxDocumentDepth);
    }
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format("{}:", error.mark.line + 1);
    throw Error(one_line(fmt::format("{}:{} invalid YAML: {}", name, line, error.msg)));
  }
  for (std::size_t i = 0; documents.size() > 1 && i < documents.size(); ++i)
    documents[i].number = fmt::format("document {}: ", i + 1);
  return documents;
}

YamlDocument parse_yaml_document(std::string_view text, const std::string& name) {
  std::vector<YamlDocument> documents = parse_yaml_documents(text, name);
  if (documents.size() > 1) throw UsageError(fmt::format("{}: expected one YAML document", name));
  if (documents.empty()) documents.emplace_back().name = name;
  return std::move(documents.front());
}

}  // namespace adaptdl::kube
