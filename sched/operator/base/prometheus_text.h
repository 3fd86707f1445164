// Writes metrics in the text format that Prometheus scrapes (exposition format 0.0.4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adaptdl::sched {

// Counts observations by size, and sums them up.
class Histogram {
 public:
  // `bounds` contains the upper bounds of the buckets, in ascending order, without infinity.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value);

  const std::vector<double>& bounds() const noexcept { return bounds_; }
  // Returns how many observations are at most bounds()[index], or all of them if `index` is bounds().size().
  std::uint64_t count_up_to(std::size_t index) const;
  double sum() const noexcept { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;  // by bucket
  double sum_ = 0;
};

class PrometheusText {
 public:
  // Names and values of labels. The names job, instance and le are reserved for Prometheus.
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // Begins a metric. `type` is counter, gauge or histogram, and `help` is one line.
  void begin(std::string_view name, std::string_view type, std::string_view help);
  // These methods add values to the metric that was begun last. Each set of labels must be added only once.
  void add(const Labels& labels, double value);
  void add(const Labels& labels, const Histogram& histogram);

  const std::string& text() const noexcept { return text_; }

 private:
  void line(std::string_view suffix, const Labels& labels, double value);

  std::string name_, text_;
};

}  // namespace adaptdl::sched
