// Renders a Helm chart without Helm.
//
// Templates may use a small subset of Helm's language: expressions {{ VALUE | FUNCTION | FUNCTION }}, where VALUE is
// .Values.KEY, .Values.KEY.KEY, .Release.Name, .Release.Namespace or .Chart.AppVersion, and FUNCTION is `toJson` or
// `replace "OLD" "NEW"`; and blocks that begin with a line {{- if VALUE }} and end with a line {{- end }}. Blocks may
// not be nested. Anything else is an error, so that every accepted template has the same meaning in Helm. JSON is valid
// YAML, so the output of `toJson` may appear wherever a plain scalar is allowed, and is read as a single value.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::cli {

struct ChartTemplate {
  std::string name;  // path, for error messages
  std::string text;
};

struct Chart {
  std::string app_version;
  nlohmann::json values;  // an object
  std::vector<ChartTemplate> templates;
};

struct ChartRelease {
  std::string name, name_space;
};

struct RenderedTemplate {
  std::string text;
  std::vector<nlohmann::json> documents;  // parsed from the text
};

// Reads Chart.yaml, values.yaml and templates/*.yaml, sorted by name. Throws Error.
Chart load_chart(const std::filesystem::path& directory);

// Sets a value from an assignment "KEY=VALUE". VALUE is YAML, but scalars are taken literally if the chart's value is a
// string. `.` separates the keys of nested mappings; `\.` is a dot in a key. Throws UsageError if the chart does not
// contain the key, or if VALUE and the chart's value have different types, except that a list may replace an empty
// mapping.
void set_chart_value(Chart& chart, const std::string& assignment);

// Evaluates the expressions in each template and parses the result. Templates with a Deployment come last. Throws
// Error, which names the template and the line.
std::vector<RenderedTemplate> render_chart(const Chart& chart, const ChartRelease& release);

// Returns JSON on one line that every YAML parser reads as the same value. Throws nlohmann::json::exception if a string
// is not valid UTF-8.
std::string json_for_yaml(const nlohmann::json& value);

}  // namespace adaptdl::cli
