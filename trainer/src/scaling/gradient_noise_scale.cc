#include "adaptdl/torch/gradient_noise_scale.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "scaling/squared_norm.h"

namespace adaptdl {

namespace {

constexpr double kSmoothing = 0.999;  // smoothing factor of the averages, per step at the initial batch size
constexpr double kMinVariance = 1e-6;

double sum_above(const std::vector<double>& values, double least) {
  double sum = 0;
  for (const double value : values) sum += std::max(value, least);
  return sum;
}

}  // namespace

GradientNoiseScale::GradientNoiseScale(std::size_t groups) {
  sqr_ = {std::vector<double>(groups, 1.0), std::vector<double>(groups, 0.0)};
  var_ = {std::vector<double>(groups, 0.0), std::vector<double>(groups, 0.0)};
}

void GradientNoiseScale::MovingAverage::add(const std::vector<double>& values, double keep) {
  weight = keep * weight + (1 - keep);
  for (std::size_t group = 0; group < average.size(); ++group) {
    sum[group] = keep * sum[group] + (1 - keep) * values[group];
    average[group] = sum[group] / weight;
  }
}

void GradientNoiseScale::MovingAverage::restart() {
  weight = 0;
  std::fill(sum.begin(), sum.end(), 0.0);
}

bool GradientNoiseScale::update(const GradientSample& sample) {
  if (!all_finite(sample.total_sqr) || !all_finite(sample.local_sqr)) return false;
  if (differenced_ && !sample.differenced) {
    sqr_.restart();
    var_.restart();
  }
  differenced_ = sample.differenced;
  const double count = sample.count;
  std::vector<double> sqr(sample.total_sqr.size()), var(sample.total_sqr.size());
  for (std::size_t group = 0; group < sqr.size(); ++group) {
    const double total = sample.total_sqr[group], local = sample.local_sqr[group];
    sqr[group] = (count * total - local) / (count - 1);
    var[group] = (local - total) * sample.scale / (count - 1);
  }
  const double keep = std::pow(kSmoothing, sample.scale);
  sqr_.add(sqr, keep);
  var_.add(var, keep);
  return true;
}

double GradientNoiseScale::sqr_avg() const noexcept { return sum_above(sqr_.average, 0); }
double GradientNoiseScale::var_avg() const noexcept { return sum_above(var_.average, kMinVariance); }

double GradientNoiseScale::gain(double scale) const noexcept {
  const double sqr = sqr_avg(), var = var_avg();
  return (var + sqr) / (var / scale + sqr);
}

nlohmann::json GradientNoiseScale::save() const {
  const auto of = [](const MovingAverage& of_what) {
    return nlohmann::json{{"average", of_what.average}, {"sum", of_what.sum}, {"weight", of_what.weight}};
  };
  return {{"sqr", of(sqr_)}, {"var", of(var_)}, {"differenced", differenced_}, {"progress", progress_}};
}

void GradientNoiseScale::load(const nlohmann::json& saved) {
  GradientNoiseScale loaded(sqr_.average.size());
  const auto into = [&](const nlohmann::json& from, MovingAverage& to) {
    from.at("average").get_to(to.average);
    from.at("sum").get_to(to.sum);
    from.at("weight").get_to(to.weight);
  };
  into(saved.at("sqr"), loaded.sqr_);
  into(saved.at("var"), loaded.var_);
  saved.at("differenced").get_to(loaded.differenced_);
  saved.at("progress").get_to(loaded.progress_);
  *this = std::move(loaded);
}

}  // namespace adaptdl
