#include "supervisor/kubeflow_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::sched {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMetrics = 64, kMaxMetricName = 128;  // the name in bytes
constexpr double kMaxRemaining = 1e12;                         // seconds

// Metrics that are never omitted, and their keys in a report.
struct KnownMetric {
  std::string_view name;
  const char* key;
};
constexpr KnownMetric kKnownMetrics[] = {{"current_epoch", "epoch"}, {"current_step", "step"}, {"epoch", "epoch"},
                                         {"loss", "loss"},           {"step", "step"},         {"steps", "steps"},
                                         {"total_steps", "steps"}};
// Keys that a metric cannot have. A report with `event` is an event.
constexpr std::string_view kReserved[] = {"event", "progress", "targetProgress", "remaining_s"};

// Returns null if the field is missing or `object` is not an object.
const json& member(const json& object, const char* name) {
  static const json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string shown_value(const json& value) { return value.is_number() ? value.dump() : value.type_name(); }

std::optional<double> amount(const json& status, const char* name, double max) {
  const json& value = member(status, name);
  if (value.is_null()) return {};
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0 && number <= max))
    throw UsageError(
        fmt::format("invalid {}: expected a number from 0 to {:g}, got {}", name, max, shown_value(value)));
  return number;
}

std::optional<double> metric_value(const json& value) {
  double number = 0;
  if (value.is_number()) {
    number = value.get<double>();
  } else {
    const std::string& text = value.get_ref<const std::string&>();
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || rest != text.data() + text.size()) return {};
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

void add_metric(json& report, const std::string& name, double value) {
  const auto known = std::ranges::find(kKnownMetrics, std::string_view(name), &KnownMetric::name);
  if (known != std::end(kKnownMetrics)) {
    report[known->key] = value;
    return;
  }
  const bool usable = !name.empty() && name.size() <= kMaxMetricName && printable(name) == name &&
                      std::ranges::find(kReserved, std::string_view(name)) == std::end(kReserved);
  if (usable && (report.size() < kMaxMetrics || report.contains(name))) report[name] = value;
}

}  // namespace

json kubeflow_report(const json& body) {
  const json& status = member(body, "trainerStatus");
  if (!status.is_object()) throw UsageError("invalid body: expected an object with the object trainerStatus");
  json report = json::object();
  const json& metrics = member(status, "metrics");
  if (!metrics.is_null() && !metrics.is_array())
    throw UsageError(fmt::format("invalid metrics: expected an array, got {}", metrics.type_name()));
  for (const json& metric : metrics) {
    const json &name = member(metric, "name"), &value = member(metric, "value");
    if (!name.is_string() || !(value.is_string() || value.is_number()))
      throw UsageError("invalid metrics: expected objects with a string name and a string or number value");
    if (const auto number = metric_value(value)) add_metric(report, name.get_ref<const std::string&>(), *number);
  }
  if (const auto percent = amount(status, "progressPercentage", 100)) {
    report["progress"] = *percent;
    report["targetProgress"] = 100;
  }
  if (const auto remaining = amount(status, "estimatedRemainingSeconds", kMaxRemaining))
    report["remaining_s"] = *remaining;
  return report;
}

}  // namespace adaptdl::sched
