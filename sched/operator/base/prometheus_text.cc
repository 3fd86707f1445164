#include "operator/base/prometheus_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace adaptdl::sched {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Histogram::observe(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += value;
}

std::uint64_t Histogram::count_up_to(std::size_t index) const {
  return std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(index) + 1, std::uint64_t{0});
}

void PrometheusText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

void PrometheusText::add(const Labels& labels, double value) { line("", labels, value); }

void PrometheusText::add(const Labels& labels, const Histogram& histogram) {
  const std::size_t last = histogram.bounds().size();
  for (std::size_t i = 0; i <= last; ++i) {
    const std::string bound = i < last ? number(histogram.bounds()[i]) : "+Inf";
    Labels with = labels;
    with.emplace_back("le", bound);
    line("_bucket", with, static_cast<double>(histogram.count_up_to(i)));
  }
  line("_sum", labels, histogram.sum());
  line("_count", labels, static_cast<double>(histogram.count_up_to(last)));
}

void PrometheusText::line(std::string_view suffix, const Labels& labels, double value) {
  text_ += name_;
  text_ += suffix;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? '{' : ',', labels[i].first, escaped(labels[i].second));
  text_ += fmt::format("{} {}\n", labels.empty() ? "" : "}", number(value));
}

}  // namespace adaptdl::sched
