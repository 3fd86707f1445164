// A Helm chart, rendered without Helm.
//
// Templates use a small subset of Helm's language: expressions {{ VALUE | FUNCTION | FUNCTION }}, where VALUE is
// .Values.KEY or .Values.KEY.KEY, .Release.Name, .Release.Namespace or .Chart.AppVersion, and FUNCTION is `toJson` or
// `replace "OLD" "NEW"`. Anything else is an error, so Helm renders every template that renders here to the same
// values. JSON is YAML: what `toJson` writes is one value in any place where a plain scalar may be.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::cli {

struct ChartTemplate {
  std::string name;  // its path, for messages
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
  std::vector<nlohmann::json> documents;  // what the text says
};

// Reads Chart.yaml, values.yaml and templates/*.yaml, sorted by name. Throws Error.
Chart load_chart(const std::filesystem::path& directory);

// Sets a value by "KEY=VALUE". VALUE is YAML, but any scalar is taken literally for a key whose value is a string.
// Below a map, KEY may continue with `.` and a key of that map; `\.` is a dot within a key. Throws UsageError if the
// chart has no such key, or VALUE is not of the type that the chart has for it; an empty map may become a list.
void set_chart_value(Chart& chart, const std::string& assignment);

// Replaces the expressions of each template and parses the result; templates with a Deployment come last. Throws Error
// that names the template and the line.
std::vector<RenderedTemplate> render_chart(const Chart& chart, const ChartRelease& release);

// JSON on one line that every YAML parser reads as the same value. Throws nlohmann::json::exception if a string is not
// UTF-8.
std::string json_for_yaml(const nlohmann::json& value);

}  // namespace adaptdl::cli
