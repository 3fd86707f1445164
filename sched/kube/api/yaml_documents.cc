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
  DocumentReader(const std::string& name, YamlDocument& document) : name_(name), document_(document) {}

  json read(const YAML::Node& node, const std::string& at, int depth) {
    if (depth == 0 || --left_ < 0) fail(node, "too many or too deeply nested values");
    document_.lines[at] = node.Mark().line + 1;
    check(node);
    if (node.IsScalar()) {
      const bool quoted = node.Tag() == "!" || node.Tag().ends_with(":str");
      return quoted ? json(node.Scalar()) : plain_scalar(node);
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
    if (node.IsScalar() && !is_utf8(node.Scalar())) fail(node, kNoText);
  }
  [[noreturn]] void fail(const YAML::Node& node, std::string_view why) const {
    throw Error(one_line(fmt::format("{}:{}: {}", name_, node.Mark().line + 1, why)));
  }

  const std::string& name_;
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

}  // namespace

std::vector<YamlDocument> parse_yaml_documents(std::string_view text, const std::string& name) {
  if (text.size() > kMaxDocumentSize) throw Error(fmt::format("{}: larger than {} MiB", name, kMaxDocumentSize >> 20));
  check_text(text, name);
  std::vector<YamlDocument> documents;
  try {
    refuse_endless(std::string(text));
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      if (!node.IsDefined() || node.IsNull()) continue;
      YamlDocument document;
      document.value = DocumentReader(name, document).read(node, "", kMaxDocumentDepth);
      documents.push_back(std::move(document));
    }
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format("{}:", error.mark.line + 1);
    throw Error(one_line(fmt::format("{}:{} invalid YAML: {}", name, line, error.msg)));
  }
  return documents;
}

}  // namespace adaptdl::kube
