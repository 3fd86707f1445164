#include "command/operator/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "command/base/suggest.h"
#include "kube/api/file.h"
#include "kube/api/yaml_documents.h"

namespace adaptdl::cli {
namespace {

// Go, and therefore Helm, escapes some of these characters in JSON; YAML does not allow the others, or reads them as
// line breaks.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kEscaped = {{{"<", "\\u003c"},
                                                                                    {">", "\\u003e"},
                                                                                    {"&", "\\u0026"},
                                                                                    {"\u2028", "\\u2028"},
                                                                                    {"\u2029", "\\u2029"},
                                                                                    {"\x7f", "\\u007f"},
                                                                                    {"\ufeff", "\\ufeff"},
                                                                                    {"\ufffe", "\\ufffe"},
                                                                                    {"\uffff", "\\uffff"}}};

namespace fs = std::filesystem;
using nlohmann::json;

json read_document(const fs::path& file) {
  const json value = kube::parse_yaml_document(kube::read_file(file, "chart"), file.string()).value;
  if (!value.is_object()) throw Error(fmt::format("{}: expected a mapping", file.string()));
  return value;
}

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  for (std::size_t at = 0; !old.empty() && (at = text.find(old, at)) != std::string::npos; at += with.size())
    text.replace(at, old.size(), with);
  return text;
}

// Returns the value at a path such as ".Values.image". Throws Error if the path does not exist.
const json& value_at(const std::string& path, const json& scope) {
  const json::json_pointer pointer(replaced(path, ".", "/"));
  if (!scope.contains(pointer)) throw Error(fmt::format("unknown value '{}'", path));
  return scope.at(pointer);
}

// Returns whether templates treat a value as true, that is, whether it is not false, null, zero or empty.
bool is_true(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

// Evaluates an expression, given without its braces. Throws Error; the caller adds the template and the line to the
// message.
std::string evaluate(const std::string& expression, const json& scope) {
  static const std::regex path("[ ]*((?:[.][A-Za-z][A-Za-z0-9]*)+)[ ]*");
  static const std::regex function(R"re([|][ ]*(?:(toJson)|replace "([^"\\]*)" "([^"\\]*)")[ ]*)re");
  const auto next = [&](const std::regex& pattern, std::string::const_iterator at) {
    std::smatch match;
    if (!std::regex_search(at, expression.end(), match, pattern, std::regex_constants::match_continuous))
      throw Error(fmt::format("unknown expression '{}'", one_line("{{" + expression + "}}", 200)));
    return match;
  };
  std::smatch match = next(path, expression.begin());
  json value = value_at(match[1], scope);
  while (match[0].second != expression.end()) {
    match = next(function, match[0].second);
    if (match[1].matched)
      value = json_for_yaml(value);
    else if (value.is_string())
      value = replaced(value.get<std::string>(), match[2], match[3]);
    else
      throw Error("replace expects a string; apply toJson first");
  }
  if (!value.is_string()) throw Error(fmt::format("'{}' is not a string; use toJson", match[1].str()));
  return value.get<std::string>();
}

bool is_line(const std::string& text, std::size_t begin, std::size_t end) {
  return (begin == 0 || text[begin - 1] == '\n') && (end == text.size() || text[end] == '\n');
}

std::string render_text(const ChartTemplate& source, const json& scope) {
  static const std::regex condition("- if ((?:[.][A-Za-z][A-Za-z0-9]*)+) ");
  std::string text;
  std::optional<std::size_t> skipped;  // length of the text before a block that is left out
  bool block = false;
  std::size_t from = 0;
  for (std::size_t open; (open = source.text.find("{{", from)) != std::string::npos;) {
    text += source.text.substr(from, open - from);
    const std::size_t close = source.text.find("}}", open);
    const auto line =
        1 + std::count(source.text.begin(), source.text.begin() + static_cast<std::ptrdiff_t>(open), '\n');
    try {
      if (close == std::string::npos) throw Error("'{{' without '}}'");
      const std::string expression = source.text.substr(open + 2, close - open - 2);
      if (expression.starts_with("-") && !is_line(source.text, open, close + 2))
        throw Error("'{{-' must begin a line, and its '}}' must end it");
      if (std::smatch match; std::regex_match(expression, match, condition)) {
        if (std::exchange(block, true)) throw Error("blocks cannot be nested");
        if (!is_true(value_at(match[1], scope))) skipped = text.size();
      } else if (expression == "- end ") {
        if (!std::exchange(block, false)) throw Error("'end' without 'if'");
        if (skipped) text.resize(*std::exchange(skipped, std::nullopt));
      } else {
        text += evaluate(expression, scope);
      }
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", source.name, line, error.what()));
    }
    from = close + 2;
  }
  if (block) throw Error(fmt::format("{}: 'if' without 'end'", source.name));
  return text + source.text.substr(from);
}

bool has_deployment(const RenderedTemplate& rendered) {
  return std::ranges::any_of(rendered.documents,
                             [](const json& document) { return document.value("kind", "") == "Deployment"; });
}

std::vector<std::string> split_key(const std::string& key) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] == '.')
      parts.emplace_back();
    else
      parts.back() += key.compare(i, 2, "\\.") == 0 ? key[++i] : key[i];
  }
  return parts;
}

const char* type_of(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "a mapping";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "true or false";
    case json::value_t::null:
      return "null";
    default:
      return "a number";
  }
}

json parse_value(const std::string& text, const std::string& option, bool string_wanted) {
  try {
    const json value = kube::parse_yaml_document(text, option).value;
    return string_wanted && value.is_primitive() && !value.is_string() ? json(text) : value;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

Chart load_chart(const fs::path& directory) {
  Chart chart;
  const json description = read_document(directory / "Chart.yaml");
  const auto version = description.find("appVersion");
  if (version == description.end() || !version->is_string())
    throw Error(fmt::format("{}: appVersion must be a string", (directory / "Chart.yaml").string()));
  chart.app_version = *version;
  chart.values = read_document(directory / "values.yaml");
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(directory / "templates", error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".yaml") files.push_back(at->path());
  }
  if (error) throw Error(fmt::format("cannot read '{}': {}", (directory / "templates").string(), error.message()));
  std::ranges::sort(files);
  for (const fs::path& file : files) chart.templates.push_back({file.string(), kube::read_file(file, "chart")});
  return chart;
}

void set_chart_value(Chart& chart, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    throw UsageError(fmt::format("--set expects KEY=VALUE, got '{}'", one_line(assignment, 200)));
  const std::string key = assignment.substr(0, equals);
  const std::string option = fmt::format("--set {}", one_line(key, 200));
  const std::vector<std::string> parts = split_key(key);
  if (std::ranges::any_of(parts, &std::string::empty)) throw UsageError(fmt::format("{}: empty key", option));
  if (!chart.values.contains(parts[0])) {
    std::vector<std::string> keys;
    for (const auto& [known, value] : chart.values.items()) keys.push_back(known);
    const auto match = closest(parts[0], keys);
    throw UsageError(
        fmt::format("{}: unknown key{}", option, match ? fmt::format("; did you mean '{}'?", *match) : ""));
  }
  json* target = &chart.values;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (target->is_null()) *target = json::object();
    if (!target->is_object()) throw UsageError(fmt::format("{}: '{}' is not a mapping", option, parts[i - 1]));
    target = &(*target)[parts[i]];
  }
  // Nested keys are fields of Kubernetes objects, whose types the API server checks.
  const bool typed = parts.size() == 1;
  json value = parse_value(assignment.substr(equals + 1), option, typed && target->is_string());
  // A patch may be a mapping or a list; its default is an empty mapping.
  const bool same = value.type() == target->type() || (value.is_number() && target->is_number()) ||
                    (target->is_object() && target->empty() && value.is_array());
  if (typed && !same)
    throw UsageError(fmt::format("{}: expected {}, got {}", option, type_of(*target), type_of(value)));
  *target = std::move(value);
}

std::vector<RenderedTemplate> render_chart(const Chart& chart, const ChartRelease& release) {
  const json scope = {{"Values", chart.values},
                      {"Release", {{"Name", release.name}, {"Namespace", release.name_space}}},
                      {"Chart", {{"AppVersion", chart.app_version}}}};
  std::vector<RenderedTemplate> all;
  for (const ChartTemplate& source : chart.templates) {
    RenderedTemplate rendered{render_text(source, scope), {}};
    for (kube::YamlDocument& document : kube::parse_yaml_documents(rendered.text, source.name))
      rendered.documents.push_back(std::move(document.value));
    all.push_back(std::move(rendered));
  }
  std::stable_partition(all.begin(), all.end(),
                        [](const RenderedTemplate& rendered) { return !has_deployment(rendered); });
  return all;
}

std::string json_for_yaml(const json& value) {
  const std::string text = value.dump();
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto escaped = std::ranges::find_if(
        kEscaped, [&](const auto& each) { return text.compare(i, each.first.size(), each.first) == 0; });
    const auto low = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (escaped != kEscaped.end()) {
      out += escaped->second;
      i += escaped->first.size();
    } else if (text[i] == '\xc2' && low < 0xa0) {  // U+0080 to U+009F
      out += fmt::format("\\u{:04x}", low);
      i += 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace adaptdl::cli
